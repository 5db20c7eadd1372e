-- A vector with as many numbers as one may have is larger than a page, and was refused, or could not be made again in a
-- rebuild, where the name of the workspace is longer. It now moves out of its row where the row would not fit otherwise;
-- shorter ones stay where they are.
ALTER TABLE whence.memory_vectors ALTER COLUMN embedding SET STORAGE MAIN;

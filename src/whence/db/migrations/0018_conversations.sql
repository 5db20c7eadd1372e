-- Conversations.
SELECT 1;

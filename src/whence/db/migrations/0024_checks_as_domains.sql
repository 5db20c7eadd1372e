-- What a column may hold is said by its type where one column is enough to say it. Postgres reads the text of every CHECK of
-- a table again for each statement that writes to it, and what a domain says once in a connection: of the time of an event
-- with a memory these were a tenth. They refuse by the names that they had.

-- Without constraints first, so that no table is written anew.
CREATE DOMAIN whence.event_time AS timestamptz;
CREATE DOMAIN whence.event_status AS text;
CREATE DOMAIN whence.schema_version AS smallint;
CREATE DOMAIN whence.importance_hint AS smallint;
CREATE DOMAIN whence.payload_ref AS text;
CREATE DOMAIN whence.commitment AS bytea;
CREATE DOMAIN whence.importance AS double precision;
CREATE DOMAIN whence.confidence AS double precision;
CREATE DOMAIN whence.role AS text;

ALTER TABLE whence.events
    DROP CONSTRAINT events_time_range,
    DROP CONSTRAINT events_status_known,
    DROP CONSTRAINT events_schema_version_from_one,
    DROP CONSTRAINT events_importance_range,
    DROP CONSTRAINT events_payload_ref_length,
    DROP CONSTRAINT events_commitment_length,
    ALTER COLUMN occurred_at TYPE whence.event_time,
    ALTER COLUMN ended_at TYPE whence.event_time,
    ALTER COLUMN status TYPE whence.event_status,
    ALTER COLUMN schema_version TYPE whence.schema_version,
    ALTER COLUMN importance_hint TYPE whence.importance_hint,
    ALTER COLUMN payload_ref TYPE whence.payload_ref,
    ALTER COLUMN payload_commitment TYPE whence.commitment;

-- Triggers that name the column stand in the way for a moment.
DROP TRIGGER memories_location ON whence.memories;
DROP TRIGGER memories_location_removed ON whence.memories;
ALTER TABLE whence.memories
    DROP CONSTRAINT memories_importance_range,
    DROP CONSTRAINT memories_confidence_range,
    DROP CONSTRAINT memories_role_known,
    ALTER COLUMN importance TYPE whence.importance,
    ALTER COLUMN confidence TYPE whence.confidence,
    ALTER COLUMN role TYPE whence.role;
CREATE TRIGGER memories_location AFTER UPDATE OF stripped_at ON whence.memories FOR EACH ROW
    WHEN (old.role = 'document' AND new.stripped_at IS NOT NULL) EXECUTE FUNCTION whence.drop_location();
CREATE TRIGGER memories_location_removed AFTER DELETE ON whence.memories FOR EACH ROW
    WHEN (old.role = 'document') EXECUTE FUNCTION whence.drop_location();

ALTER DOMAIN whence.event_time ADD CONSTRAINT events_time_range
    CHECK (VALUE >= '1970-01-01 00:00:00+00' AND VALUE < '2262-01-01 00:00:00+00');
ALTER DOMAIN whence.event_status ADD CONSTRAINT events_status_known
    CHECK (VALUE IN ('pending', 'running', 'completed', 'failed', 'timeout'));
ALTER DOMAIN whence.schema_version ADD CONSTRAINT events_schema_version_from_one CHECK (VALUE >= 1);
ALTER DOMAIN whence.importance_hint ADD CONSTRAINT events_importance_range CHECK (VALUE BETWEEN 1 AND 10);
ALTER DOMAIN whence.payload_ref ADD CONSTRAINT events_payload_ref_length CHECK (length(VALUE) <= 2048);
ALTER DOMAIN whence.commitment ADD CONSTRAINT events_commitment_length CHECK (octet_length(VALUE) = 32);
ALTER DOMAIN whence.importance ADD CONSTRAINT memories_importance_range CHECK (VALUE BETWEEN 0 AND 1);
ALTER DOMAIN whence.confidence ADD CONSTRAINT memories_confidence_range CHECK (VALUE BETWEEN 0 AND 1);
ALTER DOMAIN whence.role ADD CONSTRAINT memories_role_known CHECK (VALUE IN ('user', 'assistant', 'tool', 'document'));

-- What the planner knew of the columns went with their types.
ANALYZE whence.events;
ANALYZE whence.memories;

-- That the key of a payload exists is seen where the payload is stored, under the lock of the workspace's head, which an
-- erasure holds too. A foreign key looked at each row by a query of its own, a tenth of what a memory cost, and read all
-- payloads of a workspace whenever a key was removed.

ALTER TABLE whence.payloads DROP CONSTRAINT payloads_subject_key;
COMMENT ON COLUMN whence.payloads.key_id IS 'Was among subject_keys when the payload was stored; goes with it.';

-- In the place of a key that is not there.
CREATE FUNCTION whence.no_such_key() RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'the key of this subject is gone' USING
        ERRCODE = '23503', CONSTRAINT = 'payloads_subject_key', TABLE = 'payloads', SCHEMA = 'whence';
END $$;

-- Told before or not is decided by the text, and owner, agent and kind are mostly those of the neighbours: compared first,
-- they cost six comparisons for each that tells something.
DROP INDEX whence.memories_same_text;
CREATE UNIQUE INDEX memories_same_text ON whence.memories (body_hash, workspace_id, owner, agent, tier, anchor, kind)
    WHERE kind <> 'episodic' AND conflict_key IS NULL AND invalid_at IS NULL AND superseded_at IS NULL
        AND deleted_at IS NULL AND archived_at IS NULL;

-- Nobody has asked for it.
ALTER TABLE whence.memory_vectors DROP COLUMN owner;

-- Every recall counts in the rows that it gives back. In a page with room, no index need know of it.
ALTER TABLE whence.memories SET (fillfactor = 85);

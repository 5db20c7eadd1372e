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

-- Tables of a fleet. PostgreSQL 15 or later. Run once as the owner of the database; running it again changes nothing:
--   psql -v ON_ERROR_STOP=1 -d wirepath -f schema.sql
BEGIN;

CREATE SEQUENCE IF NOT EXISTS fences;

CREATE TABLE IF NOT EXISTS hosts (
    host text PRIMARY KEY, key text NOT NULL, seen timestamptz);

CREATE TABLE IF NOT EXISTS jobs (
    place bigint GENERATED ALWAYS AS IDENTITY,
    job text PRIMARY KEY, experiment text NOT NULL, host text NOT NULL, state text NOT NULL,
    attempt int NOT NULL, fence bigint NOT NULL, args text NOT NULL, not_after_ms bigint NOT NULL,
    changed timestamptz NOT NULL DEFAULT now());
CREATE INDEX IF NOT EXISTS jobs_experiment ON jobs (experiment, place);
CREATE INDEX IF NOT EXISTS jobs_open ON jobs (fence) WHERE state NOT IN ('stored', 'expired', 'lost', 'cancelled');

-- One line a job that has ended. A unique key cannot span partitions, hence not part of outcomes.
CREATE TABLE IF NOT EXISTS keys (job text PRIMARY KEY, attempt int NOT NULL, day date NOT NULL);

-- body: deflated.
CREATE TABLE IF NOT EXISTS outcomes (
    day date NOT NULL, job text NOT NULL, attempt int NOT NULL, host text NOT NULL, state text NOT NULL,
    body bytea NOT NULL, PRIMARY KEY (day, job)) PARTITION BY RANGE (day);
ALTER TABLE outcomes ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE IF NOT EXISTS refused (
    at timestamptz NOT NULL DEFAULT now(), host text NOT NULL, why text NOT NULL, body bytea NOT NULL);

-- Roll-outs: as they were asked for, and their transitions. Rows are never changed.
CREATE TABLE IF NOT EXISTS rollouts (
    place bigint GENERATED ALWAYS AS IDENTITY, id text PRIMARY KEY, header text NOT NULL);
CREATE TABLE IF NOT EXISTS transitions (
    rollout text NOT NULL REFERENCES rollouts, number int NOT NULL, line text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (rollout, number));

-- Creates the partition of today (UTC) and returns its day. Its caller needs no right to create tables.
CREATE OR REPLACE FUNCTION wirepath_today() RETURNS date LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    partition text := 'outcomes_' || to_char(today, 'YYYYMMDD');
BEGIN
    IF to_regclass(partition) IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('wirepath partitions'));
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF outcomes FOR VALUES FROM (%L) TO (%L)',
            partition, today, today + 1);
    END IF;
    RETURN today;
END $$;

-- Drops outcomes and ended jobs of meshes before a day, and lines of keys 30 days before it. Other jobs stay.
CREATE OR REPLACE FUNCTION wirepath_drop_before(first date) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    partition regclass;
    dropped int := 0;
BEGIN
    FOR partition IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'outcomes'::regclass LOOP
        IF right(partition::text, 8)::date < first THEN
            EXECUTE format('DROP TABLE %s', partition);
            dropped := dropped + 1;
        END IF;
    END LOOP;
    DELETE FROM keys WHERE day < first - 30;
    -- Of version 1, args was an array of words.
    DELETE FROM jobs WHERE (args::jsonb -> 'call' ?| ARRAY['echo', 'ping'] OR args::jsonb ->> 0 = 'mesh')
        AND changed < first AND state IN ('stored', 'expired', 'lost', 'cancelled');
    RETURN dropped;
END $$;

-- Role of collectors and coordinators: no DDL, no DELETE.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'wirepath_writer') THEN
        CREATE ROLE wirepath_writer NOLOGIN;
    END IF;
END $$;
GRANT SELECT, INSERT ON hosts, jobs, keys, outcomes, refused, rollouts, transitions TO wirepath_writer;
GRANT UPDATE ON hosts, jobs TO wirepath_writer;
GRANT USAGE ON SEQUENCE fences TO wirepath_writer;
REVOKE ALL ON FUNCTION wirepath_today(), wirepath_drop_before(date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION wirepath_today() TO wirepath_writer;

COMMIT;

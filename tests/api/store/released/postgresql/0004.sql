SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
COMMENT ON TABLE public.alembic_version IS 'Schema of a database of Stowplan, opened last by stowplan host 1 00000000';
CREATE TABLE public.audit (
    sequence bigint NOT NULL,
    at_s double precision NOT NULL,
    client character varying,
    role character varying,
    action character varying NOT NULL,
    resource character varying NOT NULL,
    created character varying,
    request_id character varying NOT NULL,
    status integer
);
CREATE SEQUENCE public.audit_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.audit_sequence_seq OWNED BY public.audit.sequence;
CREATE TABLE public.bodies (
    hash character varying NOT NULL,
    num_bytes integer NOT NULL,
    data bytea NOT NULL
);
CREATE TABLE public.calendars (
    name character varying NOT NULL,
    version integer NOT NULL,
    updated_at_s double precision NOT NULL,
    cluster text NOT NULL,
    entries text NOT NULL
);
CREATE TABLE public.calibrations (
    sequence bigint NOT NULL,
    name character varying NOT NULL,
    document text NOT NULL
);
CREATE SEQUENCE public.calibrations_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.calibrations_sequence_seq OWNED BY public.calibrations.sequence;
CREATE TABLE public.clusters (
    name character varying NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    updated_at_s double precision NOT NULL,
    body_hash character varying NOT NULL
);
CREATE TABLE public.comparisons (
    sequence bigint NOT NULL,
    id character varying NOT NULL,
    final boolean NOT NULL,
    document text NOT NULL
);
CREATE SEQUENCE public.comparisons_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.comparisons_sequence_seq OWNED BY public.comparisons.sequence;
CREATE TABLE public.forecasters (
    sequence bigint NOT NULL,
    name character varying NOT NULL,
    final boolean NOT NULL,
    document text NOT NULL,
    record text,
    report text
);
CREATE SEQUENCE public.forecasters_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.forecasters_sequence_seq OWNED BY public.forecasters.sequence;
CREATE TABLE public.idempotency_keys (
    collection character varying NOT NULL,
    key character varying NOT NULL,
    input_hash character varying NOT NULL,
    resource_id character varying NOT NULL
);
CREATE TABLE public.instances (
    id character varying NOT NULL,
    seen_at_s double precision NOT NULL,
    room integer NOT NULL
);
CREATE TABLE public.leases (
    resource_id character varying NOT NULL,
    collection character varying NOT NULL,
    owner character varying NOT NULL,
    epoch integer NOT NULL,
    since_s double precision NOT NULL,
    wants_end boolean NOT NULL,
    client character varying,
    due_s double precision,
    is_begun boolean NOT NULL,
    times_taken_up integer NOT NULL,
    times_begun_again integer NOT NULL
);
CREATE TABLE public.measured_runs (
    id bigint NOT NULL,
    job_id character varying NOT NULL,
    launch bigint NOT NULL,
    document text NOT NULL,
    num_records bigint NOT NULL,
    first_step bigint,
    since_s double precision,
    until_s double precision
);
CREATE SEQUENCE public.measured_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.measured_runs_id_seq OWNED BY public.measured_runs.id;
CREATE TABLE public.measured_steps (
    run bigint NOT NULL,
    step bigint NOT NULL,
    rank integer NOT NULL,
    host character varying NOT NULL,
    peak_memory_bytes bigint NOT NULL,
    started_at_s double precision NOT NULL,
    backward_s double precision NOT NULL,
    forward_s double precision NOT NULL,
    large_gradient_square double precision NOT NULL,
    learning_rate double precision NOT NULL,
    load_s double precision NOT NULL,
    loss double precision NOT NULL,
    optimizer_s double precision NOT NULL,
    receive_s double precision NOT NULL,
    reduction_s double precision NOT NULL,
    send_s double precision NOT NULL,
    small_gradient_square double precision NOT NULL,
    step_s double precision NOT NULL,
    tokens_per_s double precision NOT NULL
);
CREATE TABLE public.measured_whole_steps (
    run bigint NOT NULL,
    step bigint NOT NULL,
    started_at_s double precision NOT NULL,
    step_s double precision NOT NULL,
    loss double precision
);
CREATE TABLE public.noted_plans (
    plan_id character varying NOT NULL,
    notes text NOT NULL
);
CREATE TABLE public.plan_events (
    plan_id character varying NOT NULL,
    number bigint NOT NULL,
    event text NOT NULL
);
CREATE TABLE public.plans (
    sequence bigint NOT NULL,
    id character varying NOT NULL,
    policy character varying NOT NULL,
    status character varying NOT NULL,
    queued_at_s double precision NOT NULL,
    building_at_s double precision,
    solving_at_s double precision,
    finished_at_s double precision,
    version character varying NOT NULL,
    request text NOT NULL,
    snapshot_hash character varying NOT NULL,
    input_hash character varying NOT NULL,
    options text NOT NULL,
    idempotency_key character varying,
    objective double precision,
    bound double precision,
    relative_gap double precision,
    outcome bytea,
    timings text NOT NULL,
    failure text,
    events bytea
);
CREATE SEQUENCE public.plans_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.plans_sequence_seq OWNED BY public.plans.sequence;
CREATE TABLE public.posted_plans (
    plan_id character varying NOT NULL,
    input_hash character varying NOT NULL
);
CREATE TABLE public.replay_results (
    replays_id character varying NOT NULL,
    number integer NOT NULL,
    "row" text NOT NULL,
    result text NOT NULL
);
CREATE TABLE public.replays (
    sequence bigint NOT NULL,
    id character varying NOT NULL,
    final boolean NOT NULL,
    document text NOT NULL,
    cluster text NOT NULL,
    events text
);
CREATE SEQUENCE public.replays_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.replays_sequence_seq OWNED BY public.replays.sequence;
CREATE TABLE public.reservations (
    sequence bigint NOT NULL,
    id character varying NOT NULL,
    calendar character varying NOT NULL,
    holds integer NOT NULL,
    until_s double precision,
    document text NOT NULL
);
CREATE SEQUENCE public.reservations_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.reservations_sequence_seq OWNED BY public.reservations.sequence;
CREATE TABLE public.snapshots (
    id character varying NOT NULL,
    created_at_s double precision NOT NULL,
    body_hash character varying NOT NULL
);
CREATE TABLE public.tokens (
    sequence bigint NOT NULL,
    id character varying NOT NULL,
    client character varying NOT NULL,
    role character varying NOT NULL,
    hash character varying NOT NULL,
    created_at_s double precision NOT NULL,
    expires_at_s double precision,
    revoked_at_s double precision
);
CREATE SEQUENCE public.tokens_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.tokens_sequence_seq OWNED BY public.tokens.sequence;
ALTER TABLE ONLY public.audit ALTER COLUMN sequence SET DEFAULT nextval('public.audit_sequence_seq'::regclass);
ALTER TABLE ONLY public.calibrations ALTER COLUMN sequence SET DEFAULT nextval('public.calibrations_sequence_seq'::regclass);
ALTER TABLE ONLY public.comparisons ALTER COLUMN sequence SET DEFAULT nextval('public.comparisons_sequence_seq'::regclass);
ALTER TABLE ONLY public.forecasters ALTER COLUMN sequence SET DEFAULT nextval('public.forecasters_sequence_seq'::regclass);
ALTER TABLE ONLY public.measured_runs ALTER COLUMN id SET DEFAULT nextval('public.measured_runs_id_seq'::regclass);
ALTER TABLE ONLY public.plans ALTER COLUMN sequence SET DEFAULT nextval('public.plans_sequence_seq'::regclass);
ALTER TABLE ONLY public.replays ALTER COLUMN sequence SET DEFAULT nextval('public.replays_sequence_seq'::regclass);
ALTER TABLE ONLY public.reservations ALTER COLUMN sequence SET DEFAULT nextval('public.reservations_sequence_seq'::regclass);
ALTER TABLE ONLY public.tokens ALTER COLUMN sequence SET DEFAULT nextval('public.tokens_sequence_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0004');
INSERT INTO public.bodies VALUES ('0a5796e93f9b57ddf7c45f860485cbb7353fc0eda3dca753a444d0fd2a1573fe', 11, '\x789cab56caca4f2a56b28a8ead0500171403dd');
INSERT INTO public.bodies VALUES ('44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a', 2, '\x789cabae0500017500f9');
INSERT INTO public.clusters VALUES ('main', 1, 1, '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a');
INSERT INTO public.leases VALUES ('plan-left-behind', 'plans', '', 1, 0, false, NULL, NULL, false, 0, 0);
INSERT INTO public.noted_plans VALUES ('plan-1', '[]');
INSERT INTO public.plans VALUES (2, 'plan-left-behind', 'sia', 'queued', 1.5, NULL, NULL, NULL, '1', '{"policy":"sia"}', '0a5796e93f9b57ddf7c45f860485cbb7353fc0eda3dca753a444d0fd2a1573fe', 'sha256:0', '{}', NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL);
INSERT INTO public.plans VALUES (1, 'plan-1', 'sia', 'succeeded', 1.5, NULL, NULL, 2, '1', '{"policy":"sia"}', '0a5796e93f9b57ddf7c45f860485cbb7353fc0eda3dca753a444d0fd2a1573fe', 'sha256:0', '{}', 'key', 1.5, NULL, NULL, '\x789cabae0500017500f9', '{}', NULL, '\x789c8b8e0500011500b9');
INSERT INTO public.posted_plans VALUES ('plan-1', 'sha256:1');
SELECT pg_catalog.setval('public.audit_sequence_seq', 1, false);
SELECT pg_catalog.setval('public.calibrations_sequence_seq', 1, false);
SELECT pg_catalog.setval('public.comparisons_sequence_seq', 1, false);
SELECT pg_catalog.setval('public.forecasters_sequence_seq', 1, false);
SELECT pg_catalog.setval('public.measured_runs_id_seq', 1, false);
SELECT pg_catalog.setval('public.plans_sequence_seq', 2, true);
SELECT pg_catalog.setval('public.replays_sequence_seq', 1, false);
SELECT pg_catalog.setval('public.reservations_sequence_seq', 1, false);
SELECT pg_catalog.setval('public.tokens_sequence_seq', 1, false);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.bodies
    ADD CONSTRAINT bodies_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY public.calendars
    ADD CONSTRAINT calendars_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.calibrations
    ADD CONSTRAINT calibrations_name_key UNIQUE (name);
ALTER TABLE ONLY public.calibrations
    ADD CONSTRAINT calibrations_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.clusters
    ADD CONSTRAINT clusters_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.comparisons
    ADD CONSTRAINT comparisons_id_key UNIQUE (id);
ALTER TABLE ONLY public.comparisons
    ADD CONSTRAINT comparisons_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.forecasters
    ADD CONSTRAINT forecasters_name_key UNIQUE (name);
ALTER TABLE ONLY public.forecasters
    ADD CONSTRAINT forecasters_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (collection, key);
ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (resource_id);
ALTER TABLE ONLY public.measured_runs
    ADD CONSTRAINT measured_runs_job_id_launch_key UNIQUE (job_id, launch);
ALTER TABLE ONLY public.measured_runs
    ADD CONSTRAINT measured_runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.measured_steps
    ADD CONSTRAINT measured_steps_pkey PRIMARY KEY (run, step, rank);
ALTER TABLE ONLY public.measured_whole_steps
    ADD CONSTRAINT measured_whole_steps_pkey PRIMARY KEY (run, step);
ALTER TABLE ONLY public.noted_plans
    ADD CONSTRAINT noted_plans_pkey PRIMARY KEY (plan_id);
ALTER TABLE ONLY public.plan_events
    ADD CONSTRAINT plan_events_pkey PRIMARY KEY (plan_id, number);
ALTER TABLE ONLY public.plans
    ADD CONSTRAINT plans_id_key UNIQUE (id);
ALTER TABLE ONLY public.plans
    ADD CONSTRAINT plans_idempotency_key_key UNIQUE (idempotency_key);
ALTER TABLE ONLY public.plans
    ADD CONSTRAINT plans_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.posted_plans
    ADD CONSTRAINT posted_plans_pkey PRIMARY KEY (plan_id);
ALTER TABLE ONLY public.replay_results
    ADD CONSTRAINT replay_results_pkey PRIMARY KEY (replays_id, number);
ALTER TABLE ONLY public.replays
    ADD CONSTRAINT replays_id_key UNIQUE (id);
ALTER TABLE ONLY public.replays
    ADD CONSTRAINT replays_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_id_key UNIQUE (id);
ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_hash_key UNIQUE (hash);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_id_key UNIQUE (id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (sequence);
CREATE INDEX ix_audit_at_s ON public.audit USING btree (at_s);
CREATE INDEX ix_clusters_body_hash ON public.clusters USING btree (body_hash);
CREATE INDEX ix_comparisons_final ON public.comparisons USING btree (final);
CREATE INDEX ix_forecasters_final ON public.forecasters USING btree (final);
CREATE INDEX ix_idempotency_keys_resource_id ON public.idempotency_keys USING btree (resource_id);
CREATE INDEX ix_leases_owner ON public.leases USING btree (owner);
CREATE INDEX ix_plans_finished_at_s ON public.plans USING btree (finished_at_s);
CREATE INDEX ix_plans_snapshot_hash ON public.plans USING btree (snapshot_hash);
CREATE INDEX ix_plans_status ON public.plans USING btree (status);
CREATE INDEX ix_replays_final ON public.replays USING btree (final);
CREATE INDEX ix_reservations_calendar ON public.reservations USING btree (calendar);
CREATE INDEX ix_snapshots_body_hash ON public.snapshots USING btree (body_hash);
ALTER TABLE ONLY public.measured_steps
    ADD CONSTRAINT measured_steps_run_fkey FOREIGN KEY (run) REFERENCES public.measured_runs(id);
ALTER TABLE ONLY public.measured_whole_steps
    ADD CONSTRAINT measured_whole_steps_run_fkey FOREIGN KEY (run) REFERENCES public.measured_runs(id);

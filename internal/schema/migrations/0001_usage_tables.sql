-- Tables of durable counting. Nothing here knows Stripe; the words are those of docs/architecture.md.

-- One row that describes this installation. installation.id is written into every journal file and report
-- identifier, so that files and reports of another database are never mistaken for ours.
CREATE TABLE weir.installation (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    id             uuid NOT NULL DEFAULT gen_random_uuid(),
    lease_time     interval NOT NULL DEFAULT interval '120 s' CHECK (lease_time BETWEEN interval '10 s' AND interval '1 day'),
    simulated_at   timestamptz,  -- business time at the wall time beside it; NULL in production
    simulated_wall timestamptz,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((simulated_at IS NULL) = (simulated_wall IS NULL))
);
INSERT INTO weir.installation DEFAULT VALUES;

-- The change number: a plain row and not a sequence, so that numbers become visible in their order.
CREATE TABLE weir.changes (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL DEFAULT 0
);
INSERT INTO weir.changes DEFAULT VALUES;

-- What changed under which number: an account, or everything (NULL).
CREATE TABLE weir.change_log (
    number     bigint NOT NULL,
    account_id bigint,
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX change_log_number ON weir.change_log (number);

-- The lock of the fold: one fold at a time in the whole database.
CREATE TABLE weir.fold (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    folded bigint NOT NULL DEFAULT 0,  -- rows folded so far
    cursor bigint NOT NULL DEFAULT 0   -- the key where the next chunk begins
);
INSERT INTO weir.fold DEFAULT VALUES;

CREATE TABLE weir.catalogs (
    number       bigint PRIMARY KEY,
    hash         text NOT NULL,
    body         jsonb NOT NULL,
    default_plan text NOT NULL,
    published_at timestamptz NOT NULL,
    published_by text NOT NULL,
    told         boolean NOT NULL DEFAULT false -- every period that had not begun has these terms, and the nodes were told
);

-- Features keep their id over all catalogs, so that a key never changes its meaning.
CREATE TABLE weir.features (
    id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- The catalog's plans, one row per plan and feature. NULL included or maximum means unlimited.
CREATE TABLE weir.plan_terms (
    catalog           bigint NOT NULL REFERENCES weir.catalogs,
    plan              text NOT NULL,
    feature_id        integer NOT NULL REFERENCES weir.features,
    included          bigint CHECK (included >= 0),
    maximum           bigint CHECK (maximum >= 0),
    on_exceeded       text NOT NULL CHECK (on_exceeded IN ('block', 'bill_overage')),
    when_not_billable text NOT NULL DEFAULT 'by_cause' CHECK (when_not_billable IN ('by_cause', 'block', 'allow')),
    when_away         text NOT NULL DEFAULT 'unavailable' CHECK (when_away IN ('unavailable', 'continue')),
    enforce           text NOT NULL DEFAULT 'leases' CHECK (enforce IN ('leases', 'strict')),
    on_upgrade        text NOT NULL DEFAULT 'keep' CHECK (on_upgrade IN ('keep', 'forgive')),
    early_end         text NOT NULL DEFAULT 'carry' CHECK (early_end IN ('carry', 'fresh')),
    late              text NOT NULL DEFAULT 'hold' CHECK (late IN ('hold', 'invoice_item', 'forgive')),
    per_quantity      boolean NOT NULL DEFAULT false,
    meter             text,
    unit_amount       numeric,  -- minor currency units per unit, at most 12 decimal places
    PRIMARY KEY (catalog, plan, feature_id)
);

CREATE TABLE weir.accounts (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account    text NOT NULL UNIQUE CHECK (octet_length(account) BETWEEN 1 AND 255),
    plan       text,                       -- NULL: the default plan
    plan_until timestamptz,                -- the instant at which the subscription is set to end
    anchor     timestamptz,                -- NULL: calendar months
    months     integer NOT NULL DEFAULT 1 CHECK (months BETWEEN 1 AND 120),
    quantity   bigint NOT NULL DEFAULT 1 CHECK (quantity BETWEEN 0 AND 1000000),
    shadow     boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL
);

-- What was negotiated with one account, or what it set itself. NULL: as the plan says.
CREATE TABLE weir.overrides (
    account_id   bigint NOT NULL REFERENCES weir.accounts,
    feature_id   integer NOT NULL REFERENCES weir.features,
    included     bigint CHECK (included >= 0),
    maximum      bigint CHECK (maximum >= 0),
    spending_cap bigint CHECK (spending_cap >= 0),  -- overage units, set by the customer
    reason       text NOT NULL,
    actor        text NOT NULL,
    set_at       timestamptz NOT NULL,
    PRIMARY KEY (account_id, feature_id)
);

CREATE TABLE weir.periods (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id   bigint NOT NULL REFERENCES weir.accounts,
    starts       timestamptz NOT NULL,
    ends         timestamptz NOT NULL,
    planned      timestamptz NOT NULL,     -- the latest end that the row ever had: one that ends earlier was cut short
    cut          timestamptz,              -- ours, where the end was set in the past
    plan         text NOT NULL,
    catalog      bigint NOT NULL REFERENCES weir.catalogs,
    source       text NOT NULL CHECK (source IN ('calendar', 'subscription')),
    confirmed    boolean NOT NULL DEFAULT false,
    state        text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closing', 'closed', 'invoiced', 'void')),
    window_start timestamptz,              -- the billing window, where it is not the period itself
    window_end   timestamptz,
    carried_from bigint REFERENCES weir.periods,
    change       bigint NOT NULL DEFAULT 0,  -- the change that set this end
    closed_at    timestamptz,
    given_up     text,                     -- nodes that close did not wait for
    created_at   timestamptz NOT NULL,
    CHECK (starts < ends)
);
CREATE UNIQUE INDEX periods_start ON weir.periods (account_id, starts) WHERE state <> 'void';
CREATE INDEX periods_voided ON weir.periods (account_id) WHERE state = 'void';
CREATE INDEX periods_due ON weir.periods (ends) WHERE state IN ('open', 'closing');
CREATE INDEX periods_unbegun ON weir.periods (starts, id) WHERE state = 'open';

-- One row per (account, feature, period), with the terms as they stand for that period.
CREATE TABLE weir.keys (
    key               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id        bigint NOT NULL REFERENCES weir.accounts,
    period_id         bigint NOT NULL REFERENCES weir.periods ON DELETE CASCADE,
    feature_id        integer NOT NULL REFERENCES weir.features,
    included          bigint,
    maximum           bigint,
    highest_maximum   bigint,               -- the most overage that was ever admissible in this period; NULL: unlimited
    spending_cap      bigint,
    on_exceeded       text NOT NULL,
    when_not_billable text NOT NULL,
    when_away         text NOT NULL,
    enforce           text NOT NULL,
    on_upgrade        text NOT NULL,
    early_end         text NOT NULL,
    late              text NOT NULL,
    meter             text,
    unit_amount       numeric,
    billability       text NOT NULL DEFAULT 'no' CHECK (billability IN ('yes', 'awaiting', 'no')),
    in_plan           boolean NOT NULL DEFAULT true,  -- false once the plan lost the feature
    UNIQUE (period_id, feature_id)
);
CREATE INDEX keys_account ON weir.keys (account_id);

-- What a grant looks at, and nothing else: granted = sum of lim <= ceiling.
CREATE TABLE weir.quotas (
    key          bigint PRIMARY KEY REFERENCES weir.keys ON DELETE CASCADE,
    ceiling      bigint NOT NULL,
    granted      bigint NOT NULL DEFAULT 0,
    strict_until timestamptz NOT NULL DEFAULT '-infinity',
    ended        boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE TABLE weir.leases (
    key   bigint NOT NULL REFERENCES weir.keys ON DELETE CASCADE,
    node  bigint NOT NULL,
    ver   bigint NOT NULL DEFAULT 0,
    lim   bigint NOT NULL DEFAULT 0,
    tight boolean NOT NULL DEFAULT false,
    PRIMARY KEY (key, node)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
-- For who walks a node's rows, and says so: an index on (node, key) would do for other look-ups too, and a plan that was
-- made while the table was empty might keep to it.
CREATE INDEX leases_node ON weir.leases ((node + 0), (key + 0));

-- Keys whose loose leases were called back; the heartbeat reads what a lost notice would have said.
CREATE TABLE weir.recalls (
    key bigint PRIMARY KEY,
    at  timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX recalls_at ON weir.recalls (at);

-- Units that came of the exceptions of I1, each with its cause.
CREATE TABLE weir.overshoots (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key   bigint NOT NULL,
    node  bigint NOT NULL,
    units bigint NOT NULL,
    cause text NOT NULL,
    at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX overshoots_key ON weir.overshoots (key);
CREATE INDEX overshoots_at ON weir.overshoots (at);

-- Node 0 is the database itself (strict calls); node -1 keeps what retired nodes used. Ids are made of the time and
-- chance, not of a sequence: one that came back with a restored database would give a living node's id away again.
CREATE TABLE weir.nodes (
    id           bigint PRIMARY KEY DEFAULT
                 (extract(epoch FROM clock_timestamp() - timestamptz '2025-01-01 00:00:00+00') * 1000)::bigint * 1024 + floor(random() * 1024)::bigint,
    state        text NOT NULL CHECK (state IN ('internal', 'live', 'reaping', 'reaped', 'stopped', 'recovered', 'retiring', 'retired', 'given_up')),
    name         text NOT NULL,
    version      text NOT NULL DEFAULT '',
    heartbeat    bigint NOT NULL DEFAULT 0,
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sealed       timestamptz NOT NULL,
    applied      bigint NOT NULL DEFAULT 0,
    started_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    late         boolean NOT NULL DEFAULT false  -- rows of it came after its leases were taken back: they go beyond its lease
) WITH (fillfactor = 50);
CREATE INDEX nodes_state ON weir.nodes (state) WHERE state NOT IN ('retired', 'given_up', 'internal');
CREATE INDEX nodes_over ON weir.nodes (ended_at) WHERE state IN ('retired', 'given_up');
INSERT INTO weir.nodes (id, state, name, sealed, started_at) VALUES
    (0, 'internal', 'database', 'infinity', '-infinity'),
    (-1, 'internal', 'retired', 'infinity', '-infinity');

-- A fold may move every row of a page at once; half of each page is left free, so that all updates are HOT and the next
-- one cleans up after the last. Where a transaction that stays open keeps that from happening, vacuum comes early after it.
CREATE TABLE weir.done (
    key  bigint NOT NULL REFERENCES weir.keys ON DELETE CASCADE,
    node bigint NOT NULL,
    used bigint NOT NULL,
    PRIMARY KEY (key, node)
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX done_node ON weir.done ((node + 0), (key + 0));  -- as leases_node

-- No foreign keys: a bad row must be parked by the fold, never refused to a node. No primary key either: only the fold
-- deletes, one at a time, by the places that it read; each index here is paid for by every row of every flush.
CREATE TABLE weir.inbox (
    node bigint NOT NULL,
    key  bigint NOT NULL,
    upto bigint NOT NULL,
    at   timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000);
CREATE INDEX inbox_key ON weir.inbox (key);

CREATE TABLE weir.inbox_parked (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node      bigint NOT NULL,
    key       bigint NOT NULL,
    upto      bigint NOT NULL,
    at        timestamptz NOT NULL,
    reason    text NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX inbox_parked_at ON weir.inbox_parked (parked_at);
CREATE INDEX inbox_parked_node ON weir.inbox_parked (node, key);

-- Reservations that are held over their period's end; each batch replaces its node's rows.
CREATE TABLE weir.held (
    node bigint NOT NULL,
    key  bigint NOT NULL,
    PRIMARY KEY (node, key)
);
CREATE INDEX held_key ON weir.held (key);

-- used: what nodes counted. free + overage = used + adjusted (+ what a carry set). not_billable is a part of overage,
-- awaiting the part of it that becomes billable when the period is confirmed or a fault repaired.
CREATE TABLE weir.totals (
    key          bigint PRIMARY KEY REFERENCES weir.keys ON DELETE CASCADE,
    used         bigint NOT NULL DEFAULT 0,
    free         bigint NOT NULL DEFAULT 0,
    overage      bigint NOT NULL DEFAULT 0,
    not_billable bigint NOT NULL DEFAULT 0,
    awaiting     bigint NOT NULL DEFAULT 0,
    adjusted     bigint NOT NULL DEFAULT 0,
    carried      bigint NOT NULL DEFAULT 0,
    CHECK (used >= 0 AND free >= 0 AND overage >= 0 AND awaiting BETWEEN 0 AND not_billable AND not_billable <= overage)
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE TABLE weir.history (
    key     bigint NOT NULL REFERENCES weir.keys ON DELETE CASCADE,
    day     date NOT NULL,
    used    bigint NOT NULL DEFAULT 0,
    overage bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (key, day)
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE TABLE weir.adjustments (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key     bigint NOT NULL REFERENCES weir.keys,
    units   bigint NOT NULL,                     -- negative: a refund; 0: moved between the two
    free    bigint NOT NULL,                     -- what it did to each
    overage bigint NOT NULL,
    reason  text NOT NULL CHECK (reason <> ''),
    actor   text NOT NULL CHECK (actor <> ''),
    at      timestamptz NOT NULL,
    CHECK (units = free + overage AND (free <> 0 OR overage <> 0))
);
CREATE INDEX adjustments_key ON weir.adjustments (key);

-- Answers of calls that carried an idempotency key; only admitted calls are stored.
CREATE TABLE weir.consumed_once (
    account_id bigint NOT NULL REFERENCES weir.accounts,
    idem       text NOT NULL CHECK (octet_length(idem) BETWEEN 1 AND 255),
    key        bigint NOT NULL,
    feature_id integer NOT NULL,
    units      bigint NOT NULL,
    answer     jsonb NOT NULL,
    at         timestamptz NOT NULL,  -- business time; forgotten after 24 h
    PRIMARY KEY (account_id, idem)
);
CREATE INDEX consumed_once_at ON weir.consumed_once (at);

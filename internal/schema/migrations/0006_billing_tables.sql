-- What is read of Stripe: customers, subscriptions, events, meters and prices. Instants are business time
-- unless a column says wall; claims and back-off are wall time.

-- The database and the Stripe account as they were last seen. A changed system identifier or timeline means a restored
-- or failed-over database: reports stop until every open window was compared (weir.stops, cause 'restored').
CREATE TABLE weir.billing (
    one               boolean PRIMARY KEY DEFAULT true CHECK (one),
    livemode          boolean,
    system_identifier text,
    timeline          bigint,
    clock_skew        interval,       -- Stripe's Date minus ours
    clock_read_at     timestamptz,
    swept_at          timestamptz,
    settled_at        timestamptz,    -- when it was looked last for what time alone decides
    sweep_began       timestamptz,    -- of the sweep that is under way
    sweep_after       text NOT NULL DEFAULT '',        -- the subscription that it listed last
    sweep_listed      boolean NOT NULL DEFAULT false,  -- it has listed all
    sweep_voids       text NOT NULL DEFAULT '',        -- the void invoice that it listed last
    sweep_voids_listed boolean NOT NULL DEFAULT false, -- it has listed all
    reconciled_at     timestamptz,
    planned_at        timestamptz     -- the last hourly pass over all keys
);
INSERT INTO weir.billing DEFAULT VALUES;

-- Nothing is sent while a row is here.
CREATE TABLE weir.stops (
    cause   text PRIMARY KEY CHECK (cause IN ('unauthorized', 'clock', 'restored')),
    since   timestamptz NOT NULL,
    message text NOT NULL
);

-- What a person has to look at: one open row per kind and subject.
CREATE TABLE weir.findings (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind       text NOT NULL,
    subject    text NOT NULL,
    account_id bigint REFERENCES weir.accounts,
    message    text NOT NULL,
    since      timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    times      bigint NOT NULL DEFAULT 1,
    cleared_at timestamptz,
    cleared_by text
);
CREATE UNIQUE INDEX findings_open ON weir.findings (kind, subject) WHERE cleared_at IS NULL;
CREATE INDEX findings_account ON weir.findings (account_id) WHERE cleared_at IS NULL;

-- One account, one customer, unique both ways per mode. Due for a GET while wanted > synced, or from due_at on.
CREATE TABLE weir.customers (
    customer      text PRIMARY KEY CHECK (octet_length(customer) BETWEEN 1 AND 255),
    livemode      boolean NOT NULL,
    account_id    bigint REFERENCES weir.accounts,
    source        text,
    mapped_at     timestamptz,
    deleted       boolean NOT NULL DEFAULT false,
    wanted        bigint NOT NULL DEFAULT 1,
    synced        bigint NOT NULL DEFAULT 0,
    due_at        timestamptz,
    claim         bigint NOT NULL DEFAULT 0,                    -- fences an answer that comes too late
    claimed_until timestamptz NOT NULL DEFAULT '-infinity',     -- wall
    failures      integer NOT NULL DEFAULT 0,
    error         text,
    derived       text,                                         -- fingerprint of what was applied last
    frozen        text,                                         -- why automatic decisions stopped: a foreign amount
    synced_at     timestamptz,
    seen_at       timestamptz NOT NULL
);
CREATE UNIQUE INDEX customers_account ON weir.customers (account_id, livemode) WHERE account_id IS NOT NULL;
CREATE INDEX customers_wanted ON weir.customers (claimed_until) WHERE wanted > synced AND NOT deleted;
CREATE INDEX customers_due ON weir.customers (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE weir.mapping_log (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer   text NOT NULL,
    account_id bigint REFERENCES weir.accounts,  -- NULL: unmapped
    source     text NOT NULL,
    actor      text NOT NULL,
    at         timestamptz NOT NULL
);
CREATE INDEX mapping_log_customer ON weir.mapping_log (customer);

-- Subscriptions as they were read, never as a webhook told them.
CREATE TABLE weir.subscriptions (
    subscription   text PRIMARY KEY,
    customer       text NOT NULL REFERENCES weir.customers,
    status         text NOT NULL,
    body           text NOT NULL,              -- what plan sync derives from, JSON
    past_due_since timestamptz,
    ended_at       timestamptz,
    read_at        timestamptz NOT NULL,
    listed_at      timestamptz                 -- when a sweep listed its invoices last
);
CREATE INDEX subscriptions_customer ON weir.subscriptions (customer);

CREATE TABLE weir.webhook_events (
    event       text PRIMARY KEY CHECK (octet_length(event) BETWEEN 1 AND 255),
    type        text NOT NULL,
    livemode    boolean NOT NULL,
    api_version text,
    customer    text,
    object      text,
    thin        boolean NOT NULL DEFAULT false,
    body        text NOT NULL,
    received_at timestamptz NOT NULL,
    deliveries  bigint NOT NULL DEFAULT 1,
    state       text NOT NULL DEFAULT 'stored' CHECK (state IN ('stored', 'done', 'foreign', 'parked')),
    note        text
);
CREATE INDEX webhook_events_stored ON weir.webhook_events (received_at) WHERE state = 'stored';
CREATE INDEX webhook_events_thin ON weir.webhook_events (received_at) WHERE state = 'stored' AND thin;
CREATE INDEX webhook_events_object ON weir.webhook_events (object) WHERE state = 'stored';
CREATE INDEX webhook_events_received ON weir.webhook_events (received_at);

-- Meters and prices as they were read. A price once matched to a plan stays matched when its lookup key moves.
CREATE TABLE weir.meters (
    meter        text PRIMARY KEY,
    event_name   text NOT NULL,
    active       boolean NOT NULL,
    formula      text NOT NULL,
    event_window text,
    customer_key text NOT NULL,
    value_key    text NOT NULL,
    livemode     boolean NOT NULL,
    suspect_at   timestamptz,     -- an error report named it: open windows on it are compared again
    read_at      timestamptz NOT NULL
);
CREATE UNIQUE INDEX meters_event_name ON weir.meters (event_name) WHERE active;

CREATE TABLE weir.prices (
    price   text PRIMARY KEY,
    plan    text,               -- the plan it selected first
    meter   text,               -- event_name
    body    text NOT NULL,
    read_at timestamptz NOT NULL
);

-- Who changed what, and why; and what else nobody could tell afterwards: plan changes, refusals, and why units were not
-- billable. docs/audit.md.

-- One row per action. result NULL: begun, and no outcome is known (yet). An outcome is written once.
CREATE TABLE weir.audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,                               -- business time, as decides
    wall       timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text NOT NULL CHECK (btrim(actor) <> '' AND octet_length(actor) <= 255),
    way        text NOT NULL CHECK (way IN ('admin', 'cli', 'api', 'page')),
    action     text NOT NULL CHECK (action <> ''),
    subject    text NOT NULL DEFAULT '' CHECK (octet_length(subject) <= 512),  -- an account, a node, a finding
    arguments  jsonb NOT NULL DEFAULT '{}',
    reason     text NOT NULL CHECK (btrim(reason) <> '' AND octet_length(reason) <= 1000),
    form       text CHECK (octet_length(form) BETWEEN 16 AND 64),  -- of one form that was shown: it acts once
    decides    bigint REFERENCES weir.audit,                       -- the request of another person that this row decides
    account_id bigint REFERENCES weir.accounts,
    result     text CHECK (result IN ('done', 'refused', 'failed', 'waiting', 'declined')),
    message    text,
    ended_at   timestamptz
);
-- What failed may be asked for again by the same form; what is under way, done or refused may not.
CREATE UNIQUE INDEX audit_form ON weir.audit (form) WHERE form IS NOT NULL AND result IS DISTINCT FROM 'failed';
CREATE UNIQUE INDEX audit_decides ON weir.audit (decides) WHERE decides IS NOT NULL;  -- a request is decided once
CREATE INDEX audit_account ON weir.audit (account_id, at, id) WHERE account_id IS NOT NULL;
CREATE INDEX audit_waiting ON weir.audit (at) WHERE result = 'waiting';

CREATE TRIGGER keep BEFORE UPDATE OF id, at, wall, actor, way, action, subject, arguments, reason, form, decides
    ON weir.audit FOR EACH ROW EXECUTE FUNCTION weir.keep_ledger();
CREATE TRIGGER keep_outcome BEFORE UPDATE ON weir.audit FOR EACH ROW WHEN (OLD.result IS NOT NULL) EXECUTE FUNCTION weir.keep_ledger();
CREATE TRIGGER keep_rows BEFORE DELETE ON weir.audit FOR EACH ROW EXECUTE FUNCTION weir.keep_ledger();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON weir.audit EXECUTE FUNCTION weir.keep_ledger();

-- Sessions of the admin that were ended before their time: digests, kept until the sessions are over by themselves.
CREATE TABLE weir.ended_sessions (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    until  timestamptz NOT NULL
);

-- What plan sync and plans apply decided about an account: weir.accounts and weir.periods keep only the last of it.
CREATE TABLE weir.plan_log (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES weir.accounts,
    at         timestamptz NOT NULL,
    cause      text NOT NULL CHECK (cause IN ('subscription', 'plans applied')),
    was        jsonb NOT NULL,   -- plan, quantity, anchor, months, until; or plan, catalog
    becomes    jsonb NOT NULL
);
CREATE INDEX plan_log_account ON weir.plan_log (account_id, at);
CREATE TRIGGER keep BEFORE UPDATE OR DELETE ON weir.plan_log FOR EACH ROW EXECUTE FUNCTION weir.keep_ledger();

-- Notes what plan sync is about to write into an account, where it is something else than before.
CREATE FUNCTION weir.note_plan(p_account bigint, p_plan text, p_quantity bigint, p_anchor timestamptz, p_months integer, p_until timestamptz,
        p_now timestamptz) RETURNS void
    LANGUAGE sql VOLATILE AS $$
    INSERT INTO weir.plan_log (account_id, at, cause, was, becomes)
    SELECT a.id, p_now, 'subscription',
           jsonb_build_object('plan', a.plan, 'quantity', a.quantity, 'anchor', a.anchor, 'months', a.months, 'until', a.plan_until),
           jsonb_build_object('plan', p_plan, 'quantity', p_quantity, 'anchor', p_anchor, 'months', coalesce(p_months, 1), 'until', p_until)
    FROM weir.accounts a
    WHERE a.id = p_account
      AND (a.plan, a.quantity, a.anchor, a.months, a.plan_until) IS DISTINCT FROM (p_plan, p_quantity, p_anchor, coalesce(p_months, 1), p_until)
$$;

-- Notes the periods under way that are about to get the terms of another catalog.
CREATE FUNCTION weir.note_terms(p_account bigint, p_periods bigint[], p_catalog bigint, p_now timestamptz) RETURNS void
    LANGUAGE sql VOLATILE AS $$
    INSERT INTO weir.plan_log (account_id, at, cause, was, becomes)
    SELECT p_account, p_now, 'plans applied', jsonb_build_object('plan', p.plan, 'catalog', p.catalog), jsonb_build_object('plan', p.plan, 'catalog', p_catalog)
    FROM weir.periods p
    WHERE p.id = ANY (p_periods) AND p.starts <= p_now AND p.catalog <> p_catalog
      AND EXISTS (SELECT FROM weir.plan_terms t WHERE t.catalog = p_catalog AND t.plan = p.plan)
$$;

-- Refusals for want of units, by UTC day. What the database told a node is remembered there for a second, so that this
-- counts answers, not calls; a spell is a run of them with gaps of at most a minute.
CREATE TABLE weir.refusals (
    key      bigint NOT NULL REFERENCES weir.keys ON DELETE CASCADE,
    day      date NOT NULL,
    first_at timestamptz NOT NULL,
    last_at  timestamptz NOT NULL,
    spells   integer NOT NULL DEFAULT 1,
    answers  bigint NOT NULL DEFAULT 1,
    least    bigint NOT NULL,            -- units of the smallest call that was refused
    PRIMARY KEY (key, day)
) WITH (fillfactor = 70);

-- Notes that p_units were refused under a key, at most once a second. The caller holds the quota row's lock.
CREATE FUNCTION weir.note_refusal(p_key bigint, p_units bigint) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_now timestamptz := weir.clock();
    v_day date := (v_now AT TIME ZONE 'UTC')::date;
BEGIN
    UPDATE weir.refusals r SET last_at = v_now, answers = r.answers + 1, least = least(r.least, p_units),
        spells = r.spells + CASE WHEN v_now > r.last_at + interval '1 minute' THEN 1 ELSE 0 END
    WHERE r.key = p_key AND r.day = v_day AND (v_now >= r.last_at + interval '1 second' OR p_units < r.least);
    IF NOT FOUND THEN
        INSERT INTO weir.refusals (key, day, first_at, last_at, least)
        SELECT p_key, v_day, v_now, v_now, p_units
        WHERE NOT EXISTS (SELECT FROM weir.refusals r WHERE r.key = p_key AND r.day = v_day)
        ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- Every change of totals.not_billable, by UTC day and cause: its rows add up to it.
CREATE TABLE weir.unbilled (
    key      bigint NOT NULL REFERENCES weir.keys ON DELETE CASCADE,
    day      date NOT NULL,
    cause    text NOT NULL,
    units    bigint NOT NULL,
    first_at timestamptz NOT NULL,
    last_at  timestamptz NOT NULL,
    PRIMARY KEY (key, day, cause)
) WITH (fillfactor = 70);

CREATE FUNCTION weir.note_unbilled() RETURNS trigger
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_now   timestamptz := weir.clock();
    v_cause text;
BEGIN
    IF NEW.not_billable < OLD.not_billable THEN
        v_cause := CASE WHEN NEW.overage < OLD.overage THEN 'refunded or moved' ELSE 'billable after all' END;
    ELSE
        SELECT CASE WHEN k.on_exceeded <> 'bill_overage' THEN 'the plan bills no overage'
                    WHEN NOT EXISTS (SELECT FROM weir.customers c WHERE c.account_id = k.account_id) THEN 'mapped to no customer'
                    WHEN p.source <> 'subscription' THEN 'no subscription'
                    WHEN NOT p.confirmed THEN 'the period is not confirmed'
                    ELSE coalesce((SELECT 'finding: ' || string_agg(DISTINCT f.kind, ', ') FROM weir.findings f
                                   WHERE f.account_id = k.account_id AND f.cleared_at IS NULL), 'the subscription is not in good standing') END
        INTO v_cause FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id WHERE k.key = NEW.key;
    END IF;
    INSERT INTO weir.unbilled AS u (key, day, cause, units, first_at, last_at)
    VALUES (NEW.key, (v_now AT TIME ZONE 'UTC')::date, left(v_cause, 200), NEW.not_billable - OLD.not_billable, v_now, v_now)
    ON CONFLICT (key, day, cause) DO UPDATE SET units = u.units + excluded.units, last_at = excluded.last_at;
    RETURN NULL;
END $$;
CREATE TRIGGER note_unbilled AFTER UPDATE OF not_billable ON weir.totals FOR EACH ROW
    WHEN (OLD.not_billable <> NEW.not_billable) EXECUTE FUNCTION weir.note_unbilled();

-- One account's story reads its own rows, newest first.
CREATE INDEX reports_story ON weir.reports (key, created_at);
CREATE INDEX invoices_customer ON weir.invoices (customer, created);
CREATE INDEX webhook_events_customer ON weir.webhook_events (customer, received_at) WHERE customer IS NOT NULL;
CREATE INDEX findings_story ON weir.findings (account_id, since) WHERE account_id IS NOT NULL;
CREATE INDEX mapping_log_account ON weir.mapping_log (account_id) WHERE account_id IS NOT NULL;

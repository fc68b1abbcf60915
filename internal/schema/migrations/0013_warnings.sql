-- Warnings: thresholds of an allowance that an account has reached, found by the fold (weir.fold_rows), and what is
-- sent of them. weir.warnings is written under weir.fold only, so that ids become visible in their order.

-- What thresholds are percent of: the included units, or, where the customer's own cap is the lower bound of open
-- overage, everything up to that cap. NULL: no bound, no warning. In PL/pgSQL, because a generated column's expression
-- is planned at every INSERT, and SQL functions in it are parsed each time.
CREATE FUNCTION weir.allowance_of(included bigint, maximum bigint, spending_cap bigint, on_exceeded text, billability text,
        when_not_billable text, in_plan boolean) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE WHEN NOT in_plan OR included IS NULL THEN NULL
                WHEN spending_cap < coalesce(maximum, weir.boundless()) AND weir.overage_open(on_exceeded, billability, when_not_billable)
                THEN least(weir.boundless()::numeric, included::numeric + spending_cap)::bigint
                ELSE included END;
END $$;

-- The least amount above p_used at which a threshold is reached. No threshold left: the number that stands for no bound.
-- Where a cap lets the allowance reach past the included units, their end is a threshold too: from there on use costs.
CREATE FUNCTION weir.next_mark(p_warn_at integer[], p_included bigint, p_allowance bigint, p_used bigint) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT coalesce(least(min(m.units), CASE WHEN p_included > 0 AND p_included > p_used AND p_included < p_allowance AND p_warn_at <> '{}'
                                                     THEN p_included END), weir.boundless())::bigint
        FROM unnest(p_warn_at) AS w(percent) CROSS JOIN LATERAL (SELECT ceil(w.percent::numeric * p_allowance / 100) AS units) m
        WHERE p_allowance > 0 AND m.units > p_used);
END $$;

ALTER TABLE weir.plan_terms ADD COLUMN warn_at integer[] NOT NULL DEFAULT '{80,100}';
ALTER TABLE weir.keys
    ADD COLUMN warn_at integer[] NOT NULL DEFAULT '{80,100}',
    ADD COLUMN allowance bigint GENERATED ALWAYS AS
        (weir.allowance_of(included, maximum, spending_cap, on_exceeded, billability, when_not_billable, in_plan)) STORED;
-- warn_next: the fold looks for thresholds from here on; warned_of: the allowance that warn_next was computed of.
ALTER TABLE weir.totals ADD COLUMN warn_next bigint NOT NULL DEFAULT 0, ADD COLUMN warned_of bigint;

CREATE TABLE weir.warnings (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key       bigint NOT NULL REFERENCES weir.keys ON DELETE CASCADE,
    threshold integer NOT NULL,       -- percent
    allowance bigint NOT NULL,        -- units: of the key, or what is included, where that is less
    used      bigint NOT NULL,        -- units, when it was found
    told      boolean NOT NULL,       -- false: a higher threshold was reached in the same fold
    at        timestamptz NOT NULL,   -- business time of the usage that reached it
    found_at  timestamptz NOT NULL DEFAULT clock_timestamp(),  -- wall
    UNIQUE (key, allowance, threshold)
);

-- Ways to tell a customer that some worker has had, and the last warning that was queued for each.
CREATE TABLE weir.warning_channels (
    channel text PRIMARY KEY CHECK (octet_length(channel) BETWEEN 1 AND 64),
    upto    bigint NOT NULL
);

-- The outbox: one row per warning and channel. Claims and back-off are wall time.
CREATE TABLE weir.warning_sends (
    warning       bigint NOT NULL REFERENCES weir.warnings ON DELETE CASCADE,
    channel       text NOT NULL REFERENCES weir.warning_channels,
    state         text NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'sent', 'skipped', 'failed')),
    due_at        timestamptz NOT NULL,
    claim         bigint NOT NULL DEFAULT 0,       -- fences an outcome that comes too late
    attempts      integer NOT NULL DEFAULT 0,
    note          text,
    settled_at    timestamptz,
    PRIMARY KEY (warning, channel)
);
CREATE INDEX warning_sends_due ON weir.warning_sends (due_at) WHERE state = 'due';

-- Where an account's warnings go by mail.
CREATE TABLE weir.contacts (
    account_id bigint PRIMARY KEY REFERENCES weir.accounts,
    email      text NOT NULL CHECK (octet_length(email) BETWEEN 3 AND 254),
    actor      text NOT NULL,
    set_at     timestamptz NOT NULL
);

-- Queues what was found since for each channel, and claims up to p_most rows that are due. A warning is left out when a
-- higher threshold of the same terms was reached meanwhile, or when its period is over: one notice says it all.
CREATE FUNCTION weir.claim_warnings(p_channels text[], p_now timestamptz, p_settle interval, p_hold interval, p_most integer)
    RETURNS TABLE (warning bigint, channel text, claim bigint, attempts integer)
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    c      weir.warning_channels;
    v_last bigint;
BEGIN
    -- A channel begins with the last hour: who sets up mail today sends no notices of last month.
    INSERT INTO weir.warning_channels (channel, upto)
        SELECT x, coalesce((SELECT w.id FROM weir.warnings w WHERE w.found_at < clock_timestamp() - interval '1 hour' ORDER BY w.id DESC LIMIT 1), 0)
        FROM unnest(p_channels) x ORDER BY x ON CONFLICT DO NOTHING;
    FOR c IN SELECT * FROM weir.warning_channels x WHERE x.channel = ANY (p_channels) ORDER BY x.channel FOR UPDATE LOOP
        WITH fresh AS MATERIALIZED (
            SELECT w.id, w.told, w.found_at FROM weir.warnings w WHERE w.id > c.upto ORDER BY w.id LIMIT 10000),
        queued AS (
            INSERT INTO weir.warning_sends (warning, channel, due_at)
            SELECT f.id, c.channel, f.found_at + p_settle FROM fresh f WHERE f.told ON CONFLICT DO NOTHING)
        SELECT max(f.id) INTO v_last FROM fresh f;
        UPDATE weir.warning_channels x SET upto = v_last WHERE x.channel = c.channel AND v_last > x.upto;
    END LOOP;
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT s.warning, s.channel FROM weir.warning_sends s
        WHERE s.state = 'due' AND s.channel = ANY (p_channels) AND s.due_at <= clock_timestamp()
        ORDER BY s.due_at LIMIT p_most FOR UPDATE SKIP LOCKED),
    judged AS MATERIALIZED (
        SELECT d.warning, d.channel,
               CASE WHEN p.state = 'void' THEN 'the period was found wrong'
                    WHEN coalesce(p.cut, p.ends) <= p_now THEN 'the period is over'
                    WHEN EXISTS (SELECT FROM weir.warnings h WHERE h.key = w.key AND h.threshold::numeric * h.allowance > w.threshold::numeric * w.allowance
                                 AND (h.allowance = w.allowance OR h.allowance IN (k.included, k.allowance) AND w.allowance IN (k.included, k.allowance)))
                    THEN 'a higher threshold is told instead' END AS moot
        FROM due d JOIN weir.warnings w ON w.id = d.warning JOIN weir.keys k ON k.key = w.key JOIN weir.periods p ON p.id = k.period_id),
    skipped AS (
        UPDATE weir.warning_sends s SET state = 'skipped', note = j.moot, settled_at = clock_timestamp()
        FROM judged j WHERE s.warning = j.warning AND s.channel = j.channel AND j.moot IS NOT NULL)
    UPDATE weir.warning_sends s SET claim = s.claim + 1, attempts = s.attempts + 1, due_at = clock_timestamp() + p_hold
    FROM judged j WHERE s.warning = j.warning AND s.channel = j.channel AND j.moot IS NULL
    RETURNING s.warning, s.channel, s.claim, s.attempts;
END $$;

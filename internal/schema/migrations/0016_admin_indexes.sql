-- What the admin's pages read without looking at whole tables: indexes, and one small set that is kept for them.

CREATE INDEX accounts_prefix ON weir.accounts (account text_pattern_ops);
CREATE INDEX findings_listed ON weir.findings (id) WHERE cleared_at IS NULL;
CREATE INDEX findings_kinds ON weir.findings (kind, id) WHERE cleared_at IS NULL;
CREATE INDEX invoices_drafts ON weir.invoices (finalizes_at) WHERE status = 'draft';
CREATE INDEX invoices_number ON weir.invoices (number) WHERE number IS NOT NULL;
CREATE INDEX invoices_failing ON weir.invoices (seen_at) WHERE failures > 0;
CREATE INDEX customers_failing ON weir.customers (seen_at) WHERE failures > 0;
CREATE INDEX reports_rejected ON weir.reports (id) WHERE state = 'rejected' AND NOT replaced;
CREATE INDEX periods_running ON weir.periods (id) WHERE state = 'open';
CREATE INDEX periods_over ON weir.periods (ends, id) WHERE state IN ('closed', 'invoiced');

-- Keys of running periods that have used 80 percent of their ceiling or more, as the last pass found them. Ceilings
-- that are no bound have no row. It is kept beside the fold and not by it: nothing that counts depends on it.
CREATE TABLE weir.pressing (
    key      bigint PRIMARY KEY REFERENCES weir.keys ON DELETE CASCADE,
    permille integer NOT NULL    -- of the ceiling
);
CREATE INDEX pressing_worst ON weir.pressing (permille DESC, key);

-- The last pass.
CREATE TABLE weir.pressing_pass (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    wall timestamptz NOT NULL DEFAULT '-infinity',  -- when it began
    at   timestamptz                                -- business time of it
);
INSERT INTO weir.pressing_pass DEFAULT VALUES;

-- How much of its ceiling an amount is, in thousandths, at most 9,999; NULL: there is no bound. p_folded is what nodes
-- counted, by which the ceiling goes; p_used is that with corrections.
CREATE FUNCTION weir.pressure(p_used bigint, p_folded bigint, p_ceiling bigint) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_ceiling >= weir.boundless() / 2 THEN NULL
                WHEN p_used <= 0 THEN 0
                ELSE least(9999, p_used::numeric * 1000 / greatest(1, p_used::numeric + p_ceiling - p_folded))::integer END
$$;

-- Looks at the next p_most running periods after an id. Returns the last id that was looked at, NULL when none is left;
-- the last call of a pass also forgets keys whose period is over, and paces of more than two days ago.
CREATE FUNCTION weir.press_chunk(p_now timestamptz, p_after bigint, p_most integer) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    v_periods bigint[];
BEGIN
    SELECT array_agg(x.id ORDER BY x.id) INTO v_periods FROM (
        SELECT p.id FROM weir.periods p WHERE p.state = 'open' AND p.id > p_after ORDER BY p.id LIMIT p_most) x;
    IF v_periods IS NULL THEN
        DELETE FROM weir.pressing s USING weir.keys k, weir.periods p
        WHERE k.key = s.key AND p.id = k.period_id AND (p.state <> 'open' OR coalesce(p.cut, p.ends) <= p_now);
        DELETE FROM weir.pace c WHERE c.minute < p_now - interval '2 days';
        RETURN NULL;
    END IF;
    WITH looked AS MATERIALIZED (
        SELECT k.key, weir.pressure(t.free + t.overage, t.used, q.ceiling) AS permille
        FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id AND k.in_plan
        JOIN weir.totals t ON t.key = k.key JOIN weir.quotas q ON q.key = k.key
        WHERE p.id = ANY (v_periods) AND p.starts <= p_now AND coalesce(p.cut, p.ends) > p_now),
    relieved AS (
        DELETE FROM weir.pressing s USING looked l WHERE s.key = l.key AND coalesce(l.permille, 0) < 800)
    INSERT INTO weir.pressing AS s (key, permille) SELECT l.key, l.permille FROM looked l WHERE l.permille >= 800 ORDER BY l.key
    ON CONFLICT (key) DO UPDATE SET permille = excluded.permille WHERE s.permille <> excluded.permille;
    RETURN v_periods[cardinality(v_periods)];
END $$;

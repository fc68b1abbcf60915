-- Accounts, periods, terms and ceilings. Lock order everywhere: weir.fold, the account's row, the catalog's gate, a
-- node's gate, quota rows by key, leases, weir.changes. Account rows are locked FOR NO KEY UPDATE, so that rows which
-- refer to them are never held up.

-- Business time: the database's clock, or the simulated one of a demo or a test.
CREATE FUNCTION weir.clock() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT CASE WHEN i.simulated_at IS NULL THEN clock_timestamp()
                        ELSE i.simulated_at + (clock_timestamp() - i.simulated_wall) END FROM weir.installation i);
END $$;

-- The number that stands for "no bound". Far above any real ceiling, far below what an int64 sum could wrap.
CREATE FUNCTION weir.boundless() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 4611686018427387904 $$;

-- Whether overage may be admitted: for who is billable, and otherwise as the plan says. 'awaiting' is the operator's
-- own fault, or a renewal that is not confirmed yet.
CREATE FUNCTION weir.overage_open(on_exceeded text, billability text, when_not_billable text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT on_exceeded = 'bill_overage' AND (billability = 'yes' OR when_not_billable = 'allow'
        OR (billability = 'awaiting' AND when_not_billable = 'by_cause'))
$$;

-- The ceiling's formula: used + included units left + overage units left, where overage is open at all.
CREATE FUNCTION weir.ceiling_of(included bigint, maximum bigint, spending_cap bigint, on_exceeded text, billability text,
        when_not_billable text, in_plan boolean, used bigint, free bigint, overage bigint)
    RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT least(weir.boundless()::numeric, used::numeric
        + CASE WHEN NOT in_plan THEN 0
               WHEN included IS NULL THEN weir.boundless()::numeric
               ELSE greatest(0, included::numeric - free) END
        + CASE WHEN in_plan AND weir.overage_open(on_exceeded, billability, when_not_billable)
               THEN greatest(0, least(coalesce(maximum, weir.boundless()), coalesce(spending_cap, weir.boundless()))::numeric - overage)
               ELSE 0 END)::bigint
$$;

-- Takes the next change number and keeps its row until the transaction ends, so that numbers become visible in order.
CREATE FUNCTION weir.touch(p_account_id bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v bigint;
BEGIN
    UPDATE weir.changes SET number = number + 1 RETURNING number INTO v;
    INSERT INTO weir.change_log (number, account_id) VALUES (v, p_account_id);
    PERFORM pg_notify('weir_change', v::text);
    RETURN v;
END $$;

-- Statements here that work on arrays look rows up by LATERAL subqueries with a LIMIT (or OFFSET 0): their plans are kept,
-- and one that was made while a table was small must not read all of it later.

-- Copies the plan's terms, the overrides and the quantity into the keys of periods, and creates what is missing there.
-- p_yes and p_awaiting name the features that are billable or await it; NULL keeps what the keys say. p_before has the
-- period before each one, where there is one whose billable features go on until a GET confirms the new row.
CREATE FUNCTION weir.copy_terms(p_periods bigint[], p_yes integer[], p_awaiting integer[], p_before bigint[]) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO weir.keys AS k (account_id, period_id, feature_id, included, maximum, highest_maximum, spending_cap, on_exceeded,
            when_not_billable, when_away, enforce, on_upgrade, early_end, late, meter, unit_amount, billability, warn_at)
    SELECT t.account_id, t.period_id, t.feature_id, t.included, t.maximum,
           CASE WHEN t.on_exceeded = 'bill_overage' THEN least(t.maximum, t.spending_cap) ELSE 0 END,
           t.spending_cap, t.on_exceeded, t.when_not_billable, t.when_away, t.enforce, t.on_upgrade, t.early_end, t.late,
           t.meter, t.unit_amount, t.billability, t.warn_at
    FROM (
        SELECT p.account_id, p.id AS period_id, pt.feature_id,
               coalesce(o.included, pt.included * CASE WHEN pt.per_quantity THEN a.quantity ELSE 1 END) AS included,
               coalesce(o.maximum, pt.maximum * CASE WHEN pt.per_quantity THEN a.quantity ELSE 1 END) AS maximum,
               o.spending_cap, pt.on_exceeded, pt.when_not_billable, pt.when_away, pt.enforce, pt.on_upgrade, pt.early_end, pt.late,
               pt.meter, pt.unit_amount, pt.warn_at,
               CASE WHEN pt.feature_id = ANY (coalesce(p_yes, '{}')) THEN 'yes'
                    WHEN pt.feature_id = ANY (coalesce(p_awaiting, '{}')) OR b.key IS NOT NULL THEN 'awaiting' ELSE 'no' END AS billability
        FROM unnest(p_periods, p_before) AS x(id, before)
        CROSS JOIN LATERAL (SELECT * FROM weir.periods y WHERE y.id = x.id LIMIT 1) p
        CROSS JOIN LATERAL (SELECT * FROM weir.accounts y WHERE y.id = p.account_id LIMIT 1) a
        JOIN weir.plan_terms pt ON pt.catalog = p.catalog AND pt.plan = p.plan
        LEFT JOIN LATERAL (SELECT * FROM weir.overrides y WHERE y.account_id = p.account_id AND y.feature_id = pt.feature_id LIMIT 1) o ON true
        LEFT JOIN LATERAL (SELECT * FROM weir.keys y WHERE y.period_id = x.before AND y.feature_id = pt.feature_id
                           AND y.billability <> 'no' LIMIT 1) b ON true) t
    ON CONFLICT (period_id, feature_id) DO UPDATE SET
        included = excluded.included, maximum = excluded.maximum, spending_cap = excluded.spending_cap,
        highest_maximum = CASE WHEN k.highest_maximum IS NULL OR excluded.highest_maximum IS NULL THEN NULL
                               ELSE greatest(k.highest_maximum, excluded.highest_maximum) END,
        on_exceeded = excluded.on_exceeded, when_not_billable = excluded.when_not_billable, when_away = excluded.when_away,
        enforce = excluded.enforce, on_upgrade = excluded.on_upgrade, early_end = excluded.early_end, late = excluded.late,
        meter = coalesce(excluded.meter, k.meter), unit_amount = coalesce(excluded.unit_amount, k.unit_amount), in_plan = true,
        warn_at = excluded.warn_at,
        billability = CASE WHEN p_yes IS NULL THEN k.billability ELSE excluded.billability END;

    -- A feature that the plan has lost: nothing more may be spent, and what was counted stays.
    UPDATE weir.keys k SET in_plan = false, included = 0, on_exceeded = 'block'
    WHERE k.key = ANY (ARRAY(
        SELECT y.key FROM unnest(p_periods) AS x(id)
        CROSS JOIN LATERAL (SELECT * FROM weir.periods y WHERE y.id = x.id LIMIT 1) p
        CROSS JOIN LATERAL (SELECT z.key, z.feature_id FROM weir.keys z WHERE z.period_id = p.id OFFSET 0) y
        WHERE NOT EXISTS (SELECT FROM weir.plan_terms pt WHERE pt.catalog = p.catalog AND pt.plan = p.plan AND pt.feature_id = y.feature_id)));

    INSERT INTO weir.totals (key, free, carried)
    SELECT k.key, coalesce(c.free, 0), coalesce(c.free, 0)
    FROM unnest(p_periods) AS x(id)
    CROSS JOIN LATERAL (SELECT * FROM weir.periods y WHERE y.id = x.id LIMIT 1) p
    CROSS JOIN LATERAL (SELECT * FROM weir.keys y WHERE y.period_id = p.id OFFSET 0) k
    LEFT JOIN LATERAL (
        SELECT t.free FROM weir.keys y JOIN weir.totals t ON t.key = y.key
        WHERE y.period_id = p.carried_from AND y.feature_id = k.feature_id AND k.early_end = 'carry' LIMIT 1) c ON true
    ON CONFLICT (key) DO NOTHING;

    INSERT INTO weir.quotas (key, ceiling)
    SELECT k.key, weir.ceiling_of(k.included, k.maximum, k.spending_cap, k.on_exceeded, k.billability, k.when_not_billable, k.in_plan,
                                  t.used, t.free, t.overage)
    FROM unnest(p_periods) AS x(id)
    CROSS JOIN LATERAL (SELECT * FROM weir.keys y WHERE y.period_id = x.id OFFSET 0) k
    CROSS JOIN LATERAL (SELECT * FROM weir.totals y WHERE y.key = k.key LIMIT 1) t
    ON CONFLICT (key) DO NOTHING;
END $$;

-- The same for one period.
CREATE FUNCTION weir.copy_terms(p_period bigint, p_yes integer[], p_awaiting integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM weir.copy_terms(ARRAY[p_period], p_yes, p_awaiting, NULL);
END $$;

-- Sets the ceilings of keys anew and recalls what is granted above them. The caller holds weir.fold and has folded.
CREATE FUNCTION weir.reset_ceilings(p_keys bigint[]) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE r record;
BEGIN
    PERFORM FROM weir.quotas q WHERE q.key = ANY (p_keys) ORDER BY q.key FOR UPDATE;
    FOR r IN
        UPDATE weir.quotas q
        SET ceiling = weir.ceiling_of(k.included, k.maximum, k.spending_cap, k.on_exceeded, k.billability, k.when_not_billable,
                                      k.in_plan, t.used, t.free, t.overage)
        FROM weir.keys k JOIN weir.totals t USING (key)
        WHERE q.key = k.key AND k.key = ANY (p_keys)
        RETURNING q.key, q.granted > q.ceiling AS over
    LOOP
        IF r.over THEN
            PERFORM weir.recall(r.key, NULL);
        END IF;
    END LOOP;
END $$;

-- Calls back what other nodes hold loosely under a key. p_asker keeps its own (NULL: nobody does).
CREATE FUNCTION weir.recall(p_key bigint, p_asker bigint) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE v_nodes text;
BEGIN
    SELECT string_agg(l.node::text, ',' ORDER BY l.node) INTO v_nodes
    FROM weir.leases l WHERE l.key = p_key AND NOT l.tight AND l.node > 0 AND l.node IS DISTINCT FROM p_asker;
    IF v_nodes IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO weir.recalls (key, at) VALUES (p_key, clock_timestamp())
        ON CONFLICT (key) DO UPDATE SET at = excluded.at;
    -- A payload may hold 8,000 bytes; beyond that the heartbeat tells the nodes.
    IF octet_length(v_nodes) <= 7000 THEN
        PERFORM pg_notify('weir_recall', p_key::text || ' ' || v_nodes);
    END IF;
END $$;

-- The natural bounds of an allowance at an instant, from the anchor and never from the last boundary
-- (Jan 31 -> Feb 28 -> Mar 31). Without an anchor: the calendar month. All in UTC.
CREATE FUNCTION weir.natural_period(p_anchor timestamptz, p_months integer, p_at timestamptz, OUT starts timestamptz, OUT ends timestamptz)
    LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    a timestamp := coalesce(p_anchor AT TIME ZONE 'UTC', timestamp '2000-01-01');
    t timestamp := p_at AT TIME ZONE 'UTC';
    m integer := CASE WHEN p_anchor IS NULL THEN 1 ELSE p_months END;
    k integer;
BEGIN
    k := floor(((extract(year FROM t) - extract(year FROM a)) * 12 + extract(month FROM t) - extract(month FROM a)) / m)::integer;
    WHILE a + make_interval(months => k * m) > t LOOP k := k - 1; END LOOP;
    WHILE a + make_interval(months => (k + 1) * m) <= t LOOP k := k + 1; END LOOP;
    starts := (a + make_interval(months => k * m)) AT TIME ZONE 'UTC';
    ends := (a + make_interval(months => (k + 1) * m)) AT TIME ZONE 'UTC';
END $$;

-- The period in which an instant is admitted: a row that was cut ends at the cut, and has what lies before it, though
-- the row after it may begin earlier.
CREATE FUNCTION weir.period_at(p_account bigint, p_at timestamptz) RETURNS bigint
    LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
BEGIN
    RETURN (SELECT p.id FROM weir.periods p
        WHERE p.account_id = p_account AND p.state <> 'void' AND p.starts <= p_at AND p_at < coalesce(p.cut, p.ends)
        ORDER BY coalesce(p.cut, p.ends), p.starts LIMIT 1);
END $$;

-- Held shared by who copies terms from the latest catalog, and alone by a publication, so that no row that begins
-- later is made with the terms before it.
CREATE FUNCTION weir.catalog_gate(p_alone boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_alone THEN
        PERFORM pg_advisory_xact_lock(1463110994, 0);
    ELSE
        PERFORM pg_advisory_xact_lock_shared(1463110994, 0);
    END IF;
END $$;

-- Finds or makes the period that an instant falls into. A row that is made is predicted until a GET confirms it.
CREATE FUNCTION weir.ensure_period(p_account bigint, p_at timestamptz) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE v_id bigint;
BEGIN
    v_id := weir.period_at(p_account, p_at);
    IF v_id IS NULL THEN
        PERFORM weir.ensure_periods(ARRAY[p_account], ARRAY[p_at]);
        v_id := weir.period_at(p_account, p_at);
    END IF;
    RETURN v_id;
END $$;

-- Makes the periods that instants fall into where there are none, an instant for each account. Accounts are distinct.
CREATE FUNCTION weir.ensure_periods(p_accounts bigint[], p_ats timestamptz[]) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_accounts bigint[];
    v_ats      timestamptz[];
BEGIN
    FOR i IN 1 .. 2 LOOP
        SELECT array_agg(t.account ORDER BY t.account), array_agg(t.at ORDER BY t.account) INTO v_accounts, v_ats
        FROM unnest(p_accounts, p_ats) AS t(account, at)
        WHERE (SELECT p.id FROM weir.periods p WHERE p.account_id = t.account AND p.state <> 'void'
               AND p.starts <= t.at AND t.at < coalesce(p.cut, p.ends) LIMIT 1) IS NULL;
        IF v_accounts IS NULL THEN
            RETURN;
        END IF;
        IF i = 1 THEN  -- and look again: another session may have made them meanwhile
            PERFORM FROM weir.accounts x WHERE x.id = ANY (v_accounts) ORDER BY x.id FOR NO KEY UPDATE;
        END IF;
    END LOOP;
    PERFORM weir.catalog_gate(false);
    PERFORM weir.make_periods(v_accounts, v_ats);
END $$;

-- Makes the periods that instants fall into, where there are none. The caller holds the accounts' rows and the gate.
CREATE FUNCTION weir.make_periods(p_accounts bigint[], p_ats timestamptz[]) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_cat    weir.catalogs;
    v_change bigint;
    v_ids    bigint[];
    v_before bigint[];
BEGIN
    SELECT * INTO v_cat FROM weir.catalogs c ORDER BY c.number DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no plan file is published yet' USING ERRCODE = 'WR001', HINT = 'start the worker, or run: worker plans apply';
    END IF;
    SELECT c.number INTO v_change FROM weir.changes c;
    WITH asked AS (
        SELECT a.id, a.plan, a.plan_until, a.anchor, a.months, t.at,
               a.anchor IS NOT NULL AND (a.plan_until IS NULL OR t.at < a.plan_until) AS paid
        FROM unnest(p_accounts, p_ats) AS t(account, at)
        CROSS JOIN LATERAL (SELECT * FROM weir.accounts y WHERE y.id = t.account LIMIT 1) a),
    bounds AS (
        -- Never over a row that is there: begin where the last one ended, end where the next one begins.
        SELECT x.id, x.plan, x.at, x.paid,
               greatest(n.starts, (SELECT max(coalesce(p.cut, p.ends)) FROM weir.periods p
                                   WHERE p.account_id = x.id AND p.state <> 'void' AND p.starts <= x.at),
                        CASE WHEN NOT x.paid AND x.plan_until <= x.at THEN x.plan_until END) AS starts,
               CASE WHEN x.paid THEN least(n.ends, x.plan_until) ELSE n.ends END AS whole,
               (SELECT min(p.starts) FROM weir.periods p WHERE p.account_id = x.id AND p.state <> 'void' AND p.starts > x.at) AS next
        FROM asked x CROSS JOIN LATERAL weir.natural_period(CASE WHEN x.paid THEN x.anchor END, x.months, x.at) n),
    made AS (
        INSERT INTO weir.periods (account_id, starts, ends, planned, plan, catalog, source, carried_from, change, created_at)
        SELECT b.id, b.starts, least(b.whole, b.next), b.whole, CASE WHEN b.paid THEN coalesce(b.plan, v_cat.default_plan) ELSE v_cat.default_plan END,
               v_cat.number, CASE WHEN b.paid THEN 'subscription' ELSE 'calendar' END,
               weir.carried_from(b.id, b.starts, b.paid), v_change, b.at
        FROM bounds b
        RETURNING id, account_id, starts, source)
    -- What follows a billable period may go on until the GET that confirms it.
    SELECT array_agg(m.id), array_agg(CASE WHEN m.source = 'subscription' THEN (
        SELECT CASE WHEN p.source = 'subscription' THEN p.id END FROM weir.periods p
        WHERE p.account_id = m.account_id AND p.state <> 'void' AND p.starts < m.starts ORDER BY p.starts DESC LIMIT 1) END)
    INTO v_ids, v_before FROM made m;
    PERFORM weir.copy_terms(v_ids, '{}', '{}', v_before);
END $$;

-- The earlier row whose free units a new row opens with, so that moving boundaries mints no second allowance: a paid
-- row that was cut short and began less than 28 days before, or this month's last unpaid row.
CREATE FUNCTION weir.carried_from(p_account bigint, p_start timestamptz, p_paid boolean) RETURNS bigint
    LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
BEGIN
    RETURN (SELECT p.id FROM (
            SELECT x.* FROM weir.periods x
            WHERE x.account_id = p_account AND x.state <> 'void' AND x.starts < p_start
              AND x.source = CASE WHEN p_paid THEN 'subscription' ELSE 'calendar' END
            ORDER BY x.starts DESC LIMIT 1) p
        WHERE CASE WHEN p_paid THEN p.starts > p_start - interval '28 days' AND p.ends < p.planned
                   ELSE p.starts >= date_trunc('month', p_start, 'UTC') END);
END $$;

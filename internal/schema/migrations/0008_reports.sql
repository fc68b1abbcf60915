-- The chain of reports: planned by set from what is counted, stored before it is sent, claimed and settled by set.
-- Lock order: weir.fold, account, quotas, leases, then chains by key, reports, streams.

-- What of a key's overage may be billed: never the part over the highest maximum that was in force.
CREATE FUNCTION weir.billable(overage bigint, not_billable bigint, highest_maximum bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT least(overage - not_billable, coalesce(highest_maximum, weir.boundless()))
$$;

-- The latest minute in [p_lo, p_hi] that a customer and meter has not used, so that a one-minute summary reads exactly
-- one report. NULL when there is none.
CREATE FUNCTION weir.free_minute(p_customer text, p_meter text, p_lo timestamptz, p_hi timestamptz) RETURNS timestamptz
    LANGUAGE sql STABLE SET enable_seqscan = off AS $$
    SELECT x.m FROM (
        SELECT CASE WHEN NOT EXISTS (SELECT FROM weir.reports r WHERE r.customer = p_customer AND r.meter = p_meter AND r.stamp = p_hi) THEN p_hi
               ELSE (SELECT r.stamp - interval '1 minute' FROM weir.reports r
                     WHERE r.customer = p_customer AND r.meter = p_meter AND r.stamp <= p_hi
                       AND NOT EXISTS (SELECT FROM weir.reports y WHERE y.customer = r.customer AND y.meter = r.meter
                                       AND y.stamp = r.stamp - interval '1 minute')
                     ORDER BY r.stamp DESC LIMIT 1) END AS m) x
    WHERE x.m >= p_lo
$$;

-- The first and the last minute in which a segment's units may be stamped, 60 s inside the segment, the window and the
-- period, 2 minutes ago at the latest, within the 35 days that Stripe accepts.
CREATE FUNCTION weir.legal_minutes(s weir.segments, p_starts timestamptz, p_ends timestamptz, p_now timestamptz, OUT lo timestamptz, OUT hi timestamptz)
    LANGUAGE sql STABLE AS $$
    SELECT date_trunc('minute', greatest(s.starts, s.window_start, p_starts, p_now - interval '35 days' + interval '1 hour')
                                + interval '60 s' + interval '59.999999 s'),
           date_trunc('minute', least(least(coalesce(s.ends, p_ends), s.window_end, p_ends) - interval '60 s', p_now - interval '2 minutes'))
$$;

CREATE FUNCTION weir.report_identifier(p_id bigint, p_customer text, p_meter text, p_value bigint, p_stamp timestamptz) RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT 'weir:' || replace(i.id::text, '-', '') || ':' || p_id || ':' || left(encode(sha256(convert_to(
        p_customer || E'\x1f' || p_meter || E'\x1f' || p_value || E'\x1f' || coalesce(extract(epoch FROM p_stamp)::bigint, 0), 'UTF8')), 'hex'), 16)
    FROM weir.installation i
$$;

-- What a segment's links say so far: replaced and rejected ones say nothing.
CREATE FUNCTION weir.segment_sum(p_segment bigint) RETURNS bigint LANGUAGE sql STABLE SET enable_seqscan = off AS $$
    SELECT coalesce(sum(r.value), 0)::bigint FROM weir.reports r WHERE r.segment = p_segment AND NOT r.replaced AND r.state <> 'rejected'
$$;

-- Stores the next link of each key whose billable overage has moved, and returns how many. Keys that may not report
-- (not confirmed, a fault to be repaired, no item, invoice final) are left alone; so are those without a legal minute yet. A
-- segment that ends says what was billable in it, whatever became of the account since.
CREATE FUNCTION weir.plan_links(p_keys bigint[], p_now timestamptz, p_cause text) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    v_rows  bigint;
    v_moved bigint;
    v_all   bigint := 0;
    r       record;
BEGIN
    INSERT INTO weir.chains (key) SELECT DISTINCT k FROM unnest(p_keys) k ORDER BY 1 ON CONFLICT DO NOTHING;
    PERFORM FROM weir.chains c WHERE c.key = ANY (p_keys) ORDER BY c.key FOR UPDATE;
    LOOP
        -- One key per customer and meter at a time: each takes a minute of its own.
        WITH moved AS MATERIALIZED (
            SELECT c.key, c.seq, c.upto, b.units AS billable, s.id AS segment, s.customer, s.meter, m.lo, m.hi
            FROM weir.chains c
            JOIN weir.keys k ON k.key = c.key AND (k.billability <> 'awaiting' OR p_cause IN ('segment', 'remap'))
            JOIN weir.periods p ON p.id = k.period_id AND p.confirmed AND p.state <> 'void'
            JOIN weir.totals t ON t.key = c.key
            CROSS JOIN LATERAL (SELECT weir.billable(t.overage, t.not_billable, k.highest_maximum) AS units) b
            JOIN LATERAL (SELECT x.* FROM weir.segments x WHERE x.key = c.key ORDER BY x.id DESC LIMIT 1) s ON true
            CROSS JOIN LATERAL weir.legal_minutes(s, p.starts, p.ends, p_now) m
            WHERE c.key = ANY (p_keys) AND b.units > c.upto AND b.units - c.upto < 1000000000000000 AND m.lo <= m.hi
              -- After a remap only the end of the segment itself: what is counted since is not the old customer's.
              AND (s.ends IS NULL OR p_cause IN ('segment', 'remap')
                   OR EXISTS (SELECT FROM weir.customers cu WHERE cu.customer = s.customer AND cu.account_id = k.account_id))
              AND NOT EXISTS (SELECT FROM weir.books x WHERE x.key = c.key AND x.final)),
        stamped AS (
            SELECT DISTINCT ON (v.customer, v.meter) v.*, weir.free_minute(v.customer, v.meter, v.lo, v.hi) AS stamp
            FROM moved v ORDER BY v.customer, v.meter, v.key),
        numbered AS MATERIALIZED (
            SELECT s.*, nextval(pg_get_serial_sequence('weir.reports', 'id')) AS id FROM stamped s WHERE s.stamp IS NOT NULL),
        stored AS (
            INSERT INTO weir.reports (id, key, segment, seq, try, from_units, to_units, value, customer, meter, identifier, stamp, cause, created_at)
            SELECT n.id, n.key, n.segment, n.seq + 1, 1, n.upto, n.billable, n.billable - n.upto, n.customer, n.meter,
                   weir.report_identifier(n.id, n.customer, n.meter, n.billable - n.upto, n.stamp), n.stamp, p_cause, p_now
            FROM numbered n
            RETURNING key, seq, to_units),
        moved_on AS (
            UPDATE weir.chains c SET seq = s.seq, upto = s.to_units, planned_at = p_now, due = false FROM stored s WHERE c.key = s.key)
        SELECT (SELECT count(*) FROM stored), (SELECT count(*) FROM moved) INTO v_rows, v_moved;
        v_all := v_all + v_rows;
        EXIT WHEN v_rows = 0 OR v_rows = v_moved;
    END LOOP;
    FOR r IN
        SELECT c.key FROM weir.chains c JOIN weir.keys k ON k.key = c.key JOIN weir.totals t ON t.key = c.key
        WHERE c.key = ANY (p_keys) AND weir.billable(t.overage, t.not_billable, k.highest_maximum) < c.upto ORDER BY c.key
    LOOP
        v_all := v_all + weir.plan_down(r.key, p_now, p_cause);
    END LOOP;
    -- Nothing left to say, or nobody who may say it: the hourly pass looks again.
    UPDATE weir.chains c SET due = false, planned_at = p_now
    FROM weir.keys k, weir.periods p, weir.totals t
    WHERE c.key = ANY (p_keys) AND c.due AND k.key = c.key AND p.id = k.period_id AND t.key = c.key
      AND (weir.billable(t.overage, t.not_billable, k.highest_maximum) = c.upto OR NOT p.confirmed OR k.billability = 'awaiting' OR p.state = 'void'
           OR EXISTS (SELECT FROM weir.books x WHERE x.key = c.key AND x.final)
           OR NOT EXISTS (SELECT FROM weir.segments x WHERE x.key = c.key));
    RETURN v_all;
END $$;

-- A correction downwards lies in the segments that it corrects, the last one first, and takes no segment below zero:
-- Stripe floors at zero per segment. The caller holds the chain.
CREATE FUNCTION weir.plan_down(p_key bigint, p_now timestamptz, p_cause text) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    c       weir.chains;
    v_to    bigint;
    v_take  bigint;
    v_stamp timestamptz;
    v_id    bigint;
    v_count bigint := 0;
    r       record;
BEGIN
    SELECT * INTO c FROM weir.chains x WHERE x.key = p_key;
    SELECT weir.billable(t.overage, t.not_billable, k.highest_maximum) INTO v_to
    FROM weir.keys k JOIN weir.totals t USING (key) JOIN weir.periods p ON p.id = k.period_id
    WHERE k.key = p_key AND p.confirmed AND NOT EXISTS (SELECT FROM weir.books x WHERE x.key = p_key AND x.final);
    FOR r IN
        SELECT s.id, s.customer, s.meter, weir.segment_sum(s.id) AS sum, m.lo, m.hi
        FROM weir.segments s JOIN weir.keys k ON k.key = s.key JOIN weir.periods p ON p.id = k.period_id
        CROSS JOIN LATERAL weir.legal_minutes(s, p.starts, p.ends, p_now) m
        WHERE s.key = p_key ORDER BY s.id DESC
    LOOP
        EXIT WHEN v_to IS NULL OR c.upto <= v_to;
        CONTINUE WHEN r.sum <= 0;
        v_take := least(r.sum, c.upto - v_to, 999999999999999);
        v_stamp := weir.free_minute(r.customer, r.meter, r.lo, r.hi);
        EXIT WHEN v_stamp IS NULL OR r.lo > r.hi;
        v_id := nextval(pg_get_serial_sequence('weir.reports', 'id'));
        INSERT INTO weir.reports (id, key, segment, seq, try, from_units, to_units, value, customer, meter, identifier, stamp, cause, created_at)
            VALUES (v_id, p_key, r.id, c.seq + 1, 1, c.upto, c.upto - v_take, -v_take, r.customer, r.meter,
                    weir.report_identifier(v_id, r.customer, r.meter, -v_take, v_stamp), v_stamp, p_cause, p_now);
        UPDATE weir.chains x SET seq = c.seq + 1, upto = c.upto - v_take, planned_at = p_now, due = false WHERE x.key = p_key RETURNING * INTO c;
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END $$;

-- Ends a key's open segment: everything billable so far becomes a link in it, or, where no minute is legal, a link that
-- is never sent; what is lost that way shows when the invoice is read. The caller has folded.
CREATE FUNCTION weir.end_segment(p_key bigint, p_at timestamptz, p_now timestamptz, p_cause text) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    c    weir.chains;
    s    weir.segments;
    v_to bigint;
    v_id bigint;
BEGIN
    SELECT * INTO s FROM weir.segments x WHERE x.key = p_key AND x.ends IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE weir.segments x SET ends = greatest(p_at, x.starts) WHERE x.id = s.id;
    PERFORM weir.plan_links(ARRAY[p_key], p_now, p_cause);
    SELECT * INTO c FROM weir.chains x WHERE x.key = p_key;
    SELECT weir.billable(t.overage, t.not_billable, k.highest_maximum) INTO v_to FROM weir.keys k JOIN weir.totals t USING (key) WHERE k.key = p_key;
    IF v_to > c.upto AND NOT EXISTS (SELECT FROM weir.books x WHERE x.key = p_key AND x.final) THEN
        v_id := nextval(pg_get_serial_sequence('weir.reports', 'id'));
        INSERT INTO weir.reports (id, key, segment, seq, try, from_units, to_units, value, customer, meter, identifier, stamp, cause, created_at,
                                  state, code, message, settled_at)
            VALUES (v_id, p_key, s.id, c.seq + 1, 1, c.upto, v_to, v_to - c.upto, s.customer, s.meter,
                    weir.report_identifier(v_id, s.customer, s.meter, v_to - c.upto, NULL), NULL, p_cause, p_now,
                    'rejected', 'no_legal_minute', 'the segment ended before any minute of it could carry a report', p_now);
        UPDATE weir.chains x SET seq = c.seq + 1, upto = v_to WHERE x.key = p_key;
    END IF;
END $$;

-- Takes the locks under which plan sync applies what it read of a customer, in the common order, and folds its account.
-- NULLs when the customer is gone.
CREATE FUNCTION weir.lock_sync(p_customer text, OUT account_id bigint, OUT claim bigint)
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    SELECT c.account_id, c.claim INTO lock_sync.account_id, lock_sync.claim FROM weir.customers c WHERE c.customer = p_customer FOR UPDATE;
    IF lock_sync.account_id IS NOT NULL THEN
        PERFORM weir.fold_account(lock_sync.account_id);
    END IF;
END $$;

-- Opens a segment for each feature of a period that has none open, and keeps windows as they are now.
CREATE FUNCTION weir.open_segments(p_period bigint, p_customer text, p_now timestamptz, p_want jsonb) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    w       record;
    v_key   bigint;
    v_start timestamptz;
BEGIN
    FOR w IN
        SELECT * FROM jsonb_to_recordset(p_want) AS x("Feature" text, "Subscription" text, "Item" text, "Price" text, "Product" text,
            "Currency" text, "TaxBehavior" text, "UnitAmount" text, "Meter" text, "WindowStart" timestamptz, "WindowEnd" timestamptz, "Since" timestamptz)
        ORDER BY "Feature"
    LOOP
        UPDATE weir.segments g SET window_end = w."WindowStart" FROM weir.keys k
            WHERE g.customer = p_customer AND g.subscription = w."Subscription" AND g.meter = w."Meter"
              AND g.window_start < w."WindowStart" AND g.window_end > w."WindowStart" AND k.key = g.key AND k.period_id <> p_period;
        SELECT k.key, p.starts INTO v_key, v_start FROM weir.keys k JOIN weir.features f ON f.id = k.feature_id JOIN weir.periods p ON p.id = k.period_id
            WHERE k.period_id = p_period AND f.name = w."Feature";
        CONTINUE WHEN NOT FOUND;
        UPDATE weir.segments g SET window_start = w."WindowStart", window_end = w."WindowEnd" WHERE g.key = v_key AND g.ends IS NULL;
        IF NOT FOUND THEN
            INSERT INTO weir.segments (key, customer, subscription, item, price, product, currency, tax_behavior, unit_amount, meter,
                window_start, window_end, starts, opened_at)
            VALUES (v_key, p_customer, w."Subscription", w."Item", w."Price", nullif(w."Product", ''), w."Currency", nullif(w."TaxBehavior", ''),
                nullif(w."UnitAmount", '')::numeric, w."Meter", w."WindowStart", w."WindowEnd",
                greatest(v_start, w."WindowStart", w."Since", (SELECT max(o.ends) FROM weir.segments o WHERE o.key = v_key)), p_now);
        END IF;
        INSERT INTO weir.chains (key, due) VALUES (v_key, true) ON CONFLICT (key) DO UPDATE SET due = true;
    END LOOP;
END $$;

-- Stores the next try of a link that Stripe refused or that is proven absent: same range, new identifier, own minute.
-- Returns its id, or NULL when no minute is legal (any more).
CREATE FUNCTION weir.replace_link(p_report bigint, p_now timestamptz) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    r       weir.reports;
    v_stamp timestamptz;
    v_lo    timestamptz;
    v_hi    timestamptz;
    v_id    bigint;
BEGIN
    SELECT * INTO r FROM weir.reports x WHERE x.id = p_report;
    PERFORM FROM weir.chains c WHERE c.key = r.key FOR UPDATE;
    SELECT * INTO r FROM weir.reports x WHERE x.id = p_report FOR UPDATE;
    IF r.replaced OR r.stamp IS NULL OR r.state IN ('stored', 'recorded') OR EXISTS (SELECT FROM weir.books b WHERE b.key = r.key AND b.final) THEN
        RETURN NULL;
    END IF;
    SELECT m.lo, m.hi INTO v_lo, v_hi
    FROM weir.segments s JOIN weir.keys k ON k.key = s.key JOIN weir.periods p ON p.id = k.period_id
    CROSS JOIN LATERAL weir.legal_minutes(s, p.starts, p.ends, p_now) m WHERE s.id = r.segment;
    v_stamp := CASE WHEN v_lo <= v_hi THEN weir.free_minute(r.customer, r.meter, v_lo, v_hi) END;
    IF v_stamp IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE weir.reports x SET replaced = true WHERE x.id = p_report;
    v_id := nextval(pg_get_serial_sequence('weir.reports', 'id'));
    INSERT INTO weir.reports (id, key, segment, seq, try, from_units, to_units, value, customer, meter, identifier, stamp, cause, created_at)
        VALUES (v_id, r.key, r.segment, r.seq, r.try + 1, r.from_units, r.to_units, r.value, r.customer, r.meter,
                weir.report_identifier(v_id, r.customer, r.meter, r.value, v_stamp), v_stamp, 'replacement', p_now);
    RETURN v_id;
END $$;

-- Close: the last accounting of a period, and the books that follow from it.

-- The instant until which close may wait for nodes: the draft's own deadline, an hour after the end without one, and a
-- week where the billing window runs on.
CREATE FUNCTION weir.close_deadline(p weir.periods) RETURNS timestamptz
    LANGUAGE sql STABLE SET enable_seqscan = off AS $$
    SELECT coalesce(
        (SELECT min(i.finalizes_at) FROM weir.keys k JOIN weir.segments s ON s.key = k.key
         JOIN weir.invoices i ON i.subscription = s.subscription AND i.created >= p.ends - interval '1 minute' AND i.status = 'draft'
         WHERE k.period_id = p.id AND s.window_end <= p.ends + interval '1 minute'),
        CASE WHEN EXISTS (SELECT FROM weir.keys k JOIN weir.segments s ON s.key = k.key
                          WHERE k.period_id = p.id AND s.ends IS NULL AND s.window_end > p.ends + interval '1 hour')
             THEN p.ends + interval '7 days' ELSE p.ends + interval '1 hour' END)
$$;

-- Marks the keys of ended periods as ended, under their quota locks: ask and strict calls answer so from now on. Returns
-- the periods whose close began, at most p_most.
CREATE FUNCTION weir.begin_close(p_now timestamptz, p_most integer) RETURNS bigint[]
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    v_ids  bigint[];
    v_keys bigint[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    SELECT array_agg(x.id) INTO v_ids FROM (
        SELECT p.id FROM weir.periods p WHERE p.state = 'open' AND p.ends <= p_now AND coalesce(p.cut, p.ends) <= p_now
        ORDER BY p.ends LIMIT p_most FOR UPDATE) x;
    IF v_ids IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT coalesce(array_agg(k.key), '{}') INTO v_keys FROM weir.keys k WHERE k.period_id = ANY (v_ids);
    PERFORM FROM weir.quotas q WHERE q.key = ANY (v_keys) ORDER BY q.key FOR UPDATE;
    UPDATE weir.quotas q SET ended = true WHERE q.key = ANY (v_keys);
    UPDATE weir.periods p SET state = 'closing' WHERE p.id = ANY (v_ids);
    RETURN v_ids;
END $$;

-- The nodes that a period still waits for: live at some time since it began, neither stopped cleanly nor recovered nor
-- given up, and not sealed past its end with the change that set it applied.
CREATE FUNCTION weir.unsealed(p weir.periods) RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT string_agg(n.name || ' (' || n.id || ', ' || n.state || ')', ', ' ORDER BY n.id) FROM weir.nodes n
    WHERE n.state IN ('live', 'reaping', 'reaped') AND (n.ended_at IS NULL OR n.ended_at > p.starts)
      AND (n.sealed < coalesce(p.cut, p.ends) OR n.applied < p.change)
$$;

-- Looks at the next p_most closing periods after an id, as finish_these does. Returns the last id that was looked at,
-- NULL when none is left, and how many were closed.
CREATE FUNCTION weir.finish_close(p_now timestamptz, p_after bigint, p_most integer, OUT last bigint, OUT closed bigint)
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE v_all bigint[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    SELECT array_agg(x.id ORDER BY x.id) INTO v_all FROM (
        SELECT p.id FROM weir.periods p WHERE p.state = 'closing' AND p.id > p_after ORDER BY p.id LIMIT p_most) x;
    last := v_all[cardinality(v_all)];
    closed := weir.finish_these(v_all, p_now);
END $$;

-- Of closing periods closes those that nothing more is expected of, and those whose deadline has come: their record
-- names what was given up. Carries are set again, the books made, the final links planned. Returns how many it closed.
CREATE FUNCTION weir.finish_these(p_ids bigint[], p_now timestamptz) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    v_ids    bigint[];
    v_gave   text[];
    v_keys   bigint[];
    v_sealed timestamptz;
    v_hasty  boolean := false;
    r        record;
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    PERFORM weir.drain_voids(p_now);
    IF coalesce(cardinality(p_ids), 0) = 0 THEN
        RETURN 0;
    END IF;
    -- Where every node is live, one look at the last to seal tells most periods that must wait.
    SELECT CASE WHEN bool_and(n.state = 'live') THEN min(n.sealed) ELSE 'infinity' END INTO v_sealed
        FROM weir.nodes n WHERE n.state IN ('live', 'reaping', 'reaped');
    -- But for a draft whose deadline comes before that.
    IF EXISTS (SELECT FROM weir.periods p WHERE p.id = ANY (p_ids) AND p.state = 'closing' AND v_sealed < coalesce(p.cut, p.ends)
               AND p.ends > p_now - interval '20 minutes') THEN
        v_hasty := EXISTS (SELECT FROM weir.invoices i WHERE i.status = 'draft' AND i.finalizes_at BETWEEN p_now - interval '20 minutes' AND p_now
                           AND i.created > p_now - interval '21 minutes');
    END IF;
    SELECT array_agg(y.id ORDER BY y.id), array_agg(y.gave ORDER BY y.id) INTO v_ids, v_gave FROM (
        SELECT p.id, nullif(concat_ws('; ', weir.unsealed(p.whole),
                   CASE WHEN EXISTS (SELECT FROM weir.keys k CROSS JOIN LATERAL (SELECT FROM weir.held y WHERE y.key = k.key LIMIT 1) h
                                     WHERE k.period_id = p.id) THEN 'reservations held' END,
                   CASE WHEN EXISTS (SELECT FROM weir.keys k CROSS JOIN LATERAL (SELECT FROM weir.inbox y WHERE y.key = k.key LIMIT 1) i WHERE k.period_id = p.id)
                          OR EXISTS (SELECT FROM (SELECT y.id FROM weir.periods y WHERE y.state = 'void' AND y.replaced_by = p.id OFFSET 0) v
                                     CROSS JOIN LATERAL (SELECT y.key FROM weir.keys y WHERE y.period_id = v.id OFFSET 0) k
                                     CROSS JOIN LATERAL (SELECT FROM weir.inbox y WHERE y.key = k.key LIMIT 1) i) THEN 'rows in the inbox' END), '') AS gave, p.whole AS period
        FROM unnest(p_ids) AS x(id) CROSS JOIN LATERAL (SELECT z.*, z AS whole FROM weir.periods z WHERE z.id = x.id LIMIT 1) p
        WHERE p.state = 'closing'
          AND (coalesce(v_sealed, 'infinity') >= coalesce(p.cut, p.ends) OR p.ends <= p_now - interval '20 minutes' OR v_hasty)
        OFFSET 0) y
    WHERE CASE WHEN y.gave IS NULL THEN true ELSE weir.close_deadline(y.period) <= p_now END;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    SELECT coalesce(array_agg(k.key ORDER BY k.key), '{}') INTO v_keys FROM weir.keys k WHERE k.period_id = ANY (v_ids);
    UPDATE weir.periods p SET state = 'closed', closed_at = p_now, given_up = x.gave
        FROM unnest(v_ids, v_gave) AS x(id, gave) WHERE p.id = x.id;
    PERFORM weir.carry(v_ids);
    UPDATE weir.totals t SET booked = true WHERE t.key = ANY (v_keys);
    PERFORM weir.book(v_keys, p_now);
    -- An invoice that was final before the close: nothing is sent any more. All chains first, in their order.
    PERFORM FROM weir.chains c WHERE c.key = ANY (v_keys) ORDER BY c.key FOR UPDATE;
    FOR r IN
        SELECT DISTINCT i.invoice FROM unnest(v_keys) AS x(key)
        CROSS JOIN LATERAL (SELECT y.subscription, y.starts FROM weir.segments y WHERE y.key = x.key OFFSET 0) s
        CROSS JOIN LATERAL (SELECT y.invoice, y.status, y.created FROM weir.invoices y WHERE y.subscription = s.subscription OFFSET 0) i
        WHERE i.status IN ('open', 'paid', 'uncollectible', 'void') AND i.created > s.starts ORDER BY i.invoice
    LOOP
        PERFORM weir.settle_invoice(r.invoice, p_now);
    END LOOP;
    PERFORM weir.plan_links(v_keys, p_now, 'close');
    RETURN cardinality(v_ids);
END $$;

CREATE INDEX periods_given_up ON weir.periods (closed_at) WHERE given_up IS NOT NULL;
CREATE INDEX periods_carried ON weir.periods (carried_from) WHERE carried_from IS NOT NULL;

-- Sets what later periods opened with again, ceilings included, once the period that they carry from is closed.
CREATE FUNCTION weir.carry(p_periods bigint[]) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_keys bigint[];
    r      record;
BEGIN
    WITH moved AS (
        UPDATE weir.totals t SET free = t.free + ot.free - t.carried, carried = ot.free
        FROM unnest(p_periods) AS x(id)
        CROSS JOIN LATERAL (SELECT y.id, y.state FROM weir.periods y WHERE y.carried_from = x.id OFFSET 0) p
        CROSS JOIN LATERAL (SELECT y.key, y.feature_id, y.early_end FROM weir.keys y WHERE y.period_id = p.id OFFSET 0) k
        CROSS JOIN LATERAL (SELECT y.key FROM weir.keys y WHERE y.period_id = x.id AND y.feature_id = k.feature_id LIMIT 1) ok
        CROSS JOIN LATERAL (SELECT y.free FROM weir.totals y WHERE y.key = ok.key LIMIT 1) ot
        WHERE p.state IN ('open', 'closing') AND k.early_end = 'carry'
          AND t.key = k.key AND ot.free > t.carried
        RETURNING k.key)
    SELECT array_agg(m.key) INTO v_keys FROM moved m;
    IF v_keys IS NULL THEN
        RETURN;
    END IF;
    PERFORM weir.reset_ceilings(v_keys);
    FOR r IN SELECT DISTINCT k.account_id FROM weir.keys k WHERE k.key = ANY (v_keys) LOOP
        PERFORM weir.touch(r.account_id);
    END LOOP;
END $$;

-- Writes the books of keys whose period has ended. Before the window's invoice is final what is left is pending, after
-- it late, either sign. New lateness becomes a row of weir.late under the key's policy.
CREATE FUNCTION weir.book(p_keys bigint[], p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO weir.books AS b (key, overage, invoiced, pending, late, forgiven, not_billable, overshoot, final, booked_at)
    SELECT x.key, x.overage, x.invoiced, x.rest, 0, x.overshoot + x.forgiven, x.not_billable, x.overshoot, false, p_now
    FROM (
        SELECT y.*, y.overage - y.not_billable - y.overshoot - y.forgiven - y.invoiced AS rest
        FROM (SELECT k.key, t.overage, t.not_billable,
                     t.overage - t.not_billable - weir.billable(t.overage, t.not_billable, k.highest_maximum) AS overshoot,
                     coalesce((SELECT sum(f.units) FROM weir.forgiven f WHERE f.key = k.key), 0)::bigint AS forgiven,
                     (coalesce((SELECT sum(i.units) FROM weir.invoiced i WHERE i.key = k.key), 0)
                        + coalesce((SELECT sum(l.units) FROM weir.late l WHERE l.key = k.key AND l.state = 'credited'), 0))::bigint AS invoiced
              FROM (SELECT DISTINCT u AS key FROM unnest(p_keys) u) x
              CROSS JOIN LATERAL (SELECT * FROM weir.keys y WHERE y.key = x.key LIMIT 1) k
              CROSS JOIN LATERAL (SELECT y.state FROM weir.periods y WHERE y.id = k.period_id LIMIT 1) p
              CROSS JOIN LATERAL (SELECT y.overage, y.not_billable FROM weir.totals y WHERE y.key = k.key LIMIT 1) t
              WHERE p.state IN ('closed', 'invoiced')
              ORDER BY k.key) y) x
    ON CONFLICT (key) DO UPDATE SET overage = excluded.overage, invoiced = excluded.invoiced,
        pending = CASE WHEN b.final THEN 0 ELSE excluded.pending END,
        late = CASE WHEN b.final THEN excluded.pending ELSE 0 END,
        forgiven = excluded.forgiven, not_billable = excluded.not_billable, overshoot = excluded.overshoot, booked_at = p_now;
    PERFORM weir.note_late(p_keys, p_now);
END $$;

CREATE FUNCTION weir.late_id() RETURNS text LANGUAGE sql VOLATILE AS $$ SELECT 'weir_late_' || replace(gen_random_uuid()::text, '-', '') $$;

-- How many units of a key finalized lines bill that no credit was stored for.
CREATE FUNCTION weir.credit_room(p_key bigint) RETURNS bigint LANGUAGE sql STABLE SET enable_seqscan = off AS $$
    SELECT (coalesce((SELECT sum(i.units) FROM weir.invoiced i WHERE i.key = p_key), 0)
        + coalesce((SELECT sum(c.units) FROM weir.late c WHERE c.key = p_key AND c.line IS NOT NULL AND c.state IN ('held', 'stored', 'credited')), 0))::bigint
$$;

-- Keeps the open rows of weir.late equal to the books: what is new is a row of its own; what was settled otherwise
-- takes the rows with it that were not sent. What was counted after the key's last item had gone to another customer
-- is nobody's yet: its row has no segment, and a person decides.
CREATE FUNCTION weir.note_late(p_keys bigint[], p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    r      record;
    l      record;
    v_rest bigint;
    v_take bigint;
BEGIN
    -- A credit that found no line is looked at again when one has room.
    UPDATE weir.late x SET state = 'netted', settled_at = p_now, reason = 'a line has room for it'
    WHERE x.key = ANY (p_keys) AND x.state = 'held' AND x.policy = 'credit_note' AND x.line IS NULL AND weir.credit_room(x.key) > 0;
    FOR r IN
        SELECT b.key, b.late - coalesce(o.units, 0) AS units, k.late AS policy, b.final_by,
               (SELECT s.id FROM (SELECT x.* FROM weir.segments x WHERE x.key = b.key ORDER BY x.id DESC LIMIT 1) s
                WHERE s.ends IS NULL OR s.ends >= coalesce(p.cut, p.ends)
                   OR EXISTS (SELECT FROM weir.customers c WHERE c.customer = s.customer AND c.account_id = k.account_id)) AS segment
        FROM weir.books b JOIN weir.keys k ON k.key = b.key JOIN weir.periods p ON p.id = k.period_id
        LEFT JOIN LATERAL (SELECT sum(l.units)::bigint AS units FROM weir.late l
                           WHERE l.key = b.key AND l.state IN ('held', 'stored', 'sent')) o ON true
        WHERE b.key = ANY (p_keys) AND b.final AND b.late <> coalesce(o.units, 0) ORDER BY b.key
    LOOP
        v_rest := r.units;
        WITH gone AS (UPDATE weir.late l SET state = 'netted', settled_at = p_now, reason = 'settled otherwise'
                      WHERE l.key = r.key AND (l.state = 'held' OR (l.state = 'stored' AND l.attempts = 0)) AND sign(l.units) <> sign(r.units)
                      RETURNING l.units)
        SELECT v_rest + coalesce(sum(g.units), 0) INTO v_rest FROM gone g;
        -- A credit lowers one line, by no more than the line bills and was not credited before.
        FOR l IN
            SELECT i.line, i.units + coalesce((SELECT sum(c.units) FROM weir.late c WHERE c.key = r.key AND c.line = i.line
                                               AND c.state IN ('held', 'stored', 'credited')), 0) AS room,
                   coalesce((SELECT s.id FROM weir.segments s WHERE s.key = r.key AND s.price = n.price ORDER BY s.id DESC LIMIT 1),
                            (SELECT s.id FROM weir.segments s WHERE s.key = r.key ORDER BY s.id DESC LIMIT 1)) AS segment
            FROM weir.invoiced i JOIN weir.invoice_lines n ON n.line = i.line WHERE i.key = r.key ORDER BY 2 DESC, 1
        LOOP
            EXIT WHEN v_rest >= 0 OR l.room <= 0;
            v_take := least(l.room, -v_rest);
            INSERT INTO weir.late (key, segment, units, policy, cause, weir_id, created_at, state, line)
            VALUES (r.key, l.segment, -v_take, 'credit_note', coalesce(r.final_by, 'late'), weir.late_id(), p_now,
                    CASE WHEN l.segment IS NULL THEN 'held' ELSE 'stored' END, l.line);
            v_rest := v_rest + v_take;
        END LOOP;
        CONTINUE WHEN v_rest = 0;
        INSERT INTO weir.late (key, segment, units, policy, cause, weir_id, created_at, state)
        VALUES (r.key, r.segment, v_rest, CASE WHEN v_rest < 0 THEN 'credit_note' ELSE r.policy END, coalesce(r.final_by, 'late'), weir.late_id(), p_now,
                CASE WHEN v_rest > 0 AND r.policy = 'invoice_item' AND r.segment IS NOT NULL THEN 'stored' ELSE 'held' END);
    END LOOP;
    -- Policy forgive: written off at once, visibly.
    WITH off AS (
        UPDATE weir.late l SET state = 'forgiven', settled_at = p_now, actor = 'policy', reason = 'late: forgive'
        WHERE l.key = ANY (p_keys) AND l.state = 'held' AND l.policy = 'forgive' RETURNING l.key, l.units)
    INSERT INTO weir.forgiven (key, units, cause, actor, reason, at) SELECT o.key, o.units, 'late', 'policy', 'late: forgive', p_now FROM off o;
    UPDATE weir.books b SET
        forgiven = b.overshoot + f.units, late = b.overage - b.invoiced - b.not_billable - b.overshoot - f.units
    FROM (SELECT x.key, sum(x.units)::bigint AS units FROM weir.forgiven x WHERE x.key = ANY (p_keys) GROUP BY x.key) f
    WHERE b.key = f.key AND b.final AND b.forgiven <> b.overshoot + f.units;
END $$;

-- Declares the windows of keys final, and books them.
CREATE FUNCTION weir.finalize(p_keys bigint[], p_by text, p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    -- Nothing of them is sent any more. Who plans holds the chain.
    PERFORM FROM weir.chains c WHERE c.key = ANY (p_keys) ORDER BY c.key FOR UPDATE;
    PERFORM FROM weir.reports r WHERE r.key = ANY (p_keys) AND r.state IN ('stored', 'unknown') AND NOT r.replaced ORDER BY r.id FOR UPDATE;
    UPDATE weir.reports r SET over = true WHERE r.key = ANY (p_keys) AND r.state IN ('stored', 'unknown') AND NOT r.replaced;
    UPDATE weir.books b SET final = true, final_by = p_by WHERE b.key = ANY (p_keys) AND NOT b.final;
    PERFORM weir.book(p_keys, p_now);
    UPDATE weir.periods p SET state = 'invoiced' FROM weir.keys k
    WHERE k.key = ANY (p_keys) AND p.id = k.period_id AND p.state = 'closed'
      AND NOT EXISTS (SELECT FROM weir.keys x JOIN weir.books b ON b.key = x.key WHERE x.period_id = p.id AND NOT b.final);
END $$;

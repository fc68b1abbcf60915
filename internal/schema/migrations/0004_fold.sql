-- From nodes to totals: flush, the fold, and the ends of a node.

-- One batch of a node: append its cumulative usage, move its heartbeat and mark, read back what others used.
CREATE TYPE weir.flush_answer AS (
    state    text,          -- the node's state: rejoin unless live
    change   bigint,        -- the latest change number
    clock    timestamptz,   -- business time
    live     bigint,        -- live nodes
    keys     bigint[],      -- of the batch and of the watch list, with the five figures of each
    others   bigint[],      -- stored by other nodes, inbox included
    folded   bigint[],      -- folded, of all nodes
    free     bigint[],
    overage  bigint[],
    adjusted bigint[],
    recalled bigint[]       -- keys of this node that were called back within the last 2 s
);

CREATE FUNCTION weir.flush(p_node bigint, p_keys bigint[], p_uptos bigint[], p_at timestamptz, p_beat boolean, p_sealed timestamptz,
        p_applied bigint, p_held bigint[], p_watch bigint[]) RETURNS weir.flush_answer
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE a weir.flush_answer;
BEGIN
    INSERT INTO weir.inbox (node, key, upto, at) SELECT p_node, t.k, t.u, p_at FROM unnest(p_keys, p_uptos) AS t(k, u);
    IF p_beat THEN
        UPDATE weir.nodes n SET heartbeat = n.heartbeat + 1, heartbeat_at = clock_timestamp(),
               sealed = greatest(n.sealed, p_sealed), applied = greatest(n.applied, p_applied)
        WHERE n.id = p_node AND n.state = 'live';
        IF p_held IS NOT NULL THEN
            DELETE FROM weir.held h WHERE h.node = p_node AND NOT h.key = ANY (p_held);
            INSERT INTO weir.held (node, key) SELECT p_node, k FROM unnest(p_held) k ON CONFLICT DO NOTHING;
        END IF;
    END IF;
    IF cardinality(p_keys) > 0 THEN
        PERFORM pg_notify('weir_inbox', '');
    END IF;
    SELECT n.state INTO a.state FROM weir.nodes n WHERE n.id = p_node;
    SELECT c.number INTO a.change FROM weir.changes c;
    a.clock := weir.clock();
    a.live := weir.live_nodes(p_node, true);
    SELECT array_agg(s.k), array_agg(s.all_nodes - s.own), array_agg(s.used), array_agg(s.free), array_agg(s.overage), array_agg(s.adjusted)
    INTO a.keys, a.others, a.folded, a.free, a.overage, a.adjusted
    FROM (SELECT w.k, t.used + coalesce(i.units, 0) AS all_nodes, coalesce(d.used, 0) AS own, t.used, t.free, t.overage, t.adjusted
          FROM unnest(p_keys || p_watch) w(k)
          JOIN weir.totals t ON t.key = w.k
          LEFT JOIN weir.done d ON d.key = w.k AND d.node = p_node
          LEFT JOIN LATERAL (
              SELECT sum(greatest(0, x.upto - coalesce(e.used, 0)))::bigint AS units
              FROM (SELECT b.node, max(b.upto) AS upto FROM weir.inbox b WHERE b.key = w.k AND b.node <> p_node GROUP BY b.node) x
              LEFT JOIN weir.done e ON e.key = w.k AND e.node = x.node) i ON true) s;
    IF p_beat THEN
        SELECT array_agg(r.key) INTO a.recalled FROM weir.recalls r
        JOIN weir.leases l ON l.key = r.key AND l.node = p_node AND NOT l.tight
        WHERE r.at > clock_timestamp() - interval '2 s';
    END IF;
    RETURN a;
END $$;

-- Folds exactly these inbox rows. The caller has locked weir.fold in an earlier statement: in the same one the lock
-- would come after the snapshot. A fold takes the maximum per node and key, so repeats and reorderings add nothing.
CREATE FUNCTION weir.fold_rows(p_ids bigint[]) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE v_rows bigint;
BEGIN
    WITH bad AS (
        SELECT i.id, CASE WHEN i.upto < 0 OR i.upto > weir.boundless() THEN 'units out of range'
                          WHEN k.key IS NULL THEN 'unknown key'
                          WHEN n.id IS NULL THEN 'unknown node'
                          ELSE 'node is ' || n.state END AS reason
        FROM weir.inbox i
        LEFT JOIN weir.keys k ON k.key = i.key
        LEFT JOIN weir.nodes n ON n.id = i.node
        WHERE i.id = ANY (p_ids)
          AND (k.key IS NULL OR n.id IS NULL OR n.state IN ('retired', 'given_up') OR i.upto < 0 OR i.upto > weir.boundless())),
    gone AS (DELETE FROM weir.inbox i USING bad b WHERE i.id = b.id RETURNING i.*, b.reason)
    INSERT INTO weir.inbox_parked (id, node, key, upto, at, reason) SELECT g.id, g.node, g.key, g.upto, g.at, g.reason FROM gone g;

    WITH picked AS MATERIALIZED (
        SELECT i.id, i.node, i.key, i.upto, i.at,
               greatest(0, i.upto - greatest(coalesce(d.used, 0), coalesce(max(i.upto) OVER (
                   PARTITION BY i.key, i.node ORDER BY i.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0))) AS d
        FROM weir.inbox i LEFT JOIN weir.done d ON d.key = i.key AND d.node = i.node
        WHERE i.id = ANY (p_ids)),
    gone AS (DELETE FROM weir.inbox i USING picked p WHERE i.id = p.id),
    done AS (
        INSERT INTO weir.done AS x (key, node, used)
        SELECT p.key, p.node, max(p.upto) FROM picked p GROUP BY p.key, p.node ORDER BY p.key, p.node
        ON CONFLICT (key, node) DO UPDATE SET used = greatest(x.used, excluded.used)),
    split AS MATERIALIZED (  -- counted forward: included units first, in the order of arrival
        SELECT s.key, s.at, s.d,
               CASE WHEN k.included IS NULL THEN s.d ELSE least(s.d, greatest(0, k.included - t.free - s.before)) END AS free
        FROM (SELECT p.*, sum(p.d) OVER (PARTITION BY p.key ORDER BY p.id) - p.d AS before FROM picked p WHERE p.d > 0) s
        JOIN weir.keys k ON k.key = s.key
        JOIN weir.totals t ON t.key = s.key),
    days AS (
        INSERT INTO weir.history AS h (key, day, used, overage)
        SELECT s.key, (s.at AT TIME ZONE 'UTC')::date, sum(s.d), sum(s.d - s.free) FROM split s GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (key, day) DO UPDATE SET used = h.used + excluded.used, overage = h.overage + excluded.overage)
    UPDATE weir.totals t SET
        used = t.used + s.d, free = t.free + s.free, overage = t.overage + s.d - s.free,
        not_billable = t.not_billable + CASE WHEN k.billability = 'yes' THEN 0 ELSE s.d - s.free END,
        awaiting = t.awaiting + CASE WHEN k.billability = 'awaiting' THEN s.d - s.free ELSE 0 END
    FROM (SELECT s.key, sum(s.d)::bigint AS d, sum(s.free)::bigint AS free FROM split s GROUP BY s.key) s
    JOIN weir.keys k ON k.key = s.key
    WHERE t.key = s.key;

    UPDATE weir.fold SET folded = folded + cardinality(p_ids);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    RETURN cardinality(p_ids);
END $$;

-- One chunk of the fold, oldest rows first, of every node. Returns how many rows it took.
CREATE FUNCTION weir.fold_chunk(p_most integer) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE v_ids bigint[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    SELECT array_agg(i.id) INTO v_ids FROM (SELECT x.id FROM weir.inbox x ORDER BY x.id LIMIT p_most) i;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    RETURN weir.fold_rows(v_ids);
END $$;

-- Folds what the inbox holds of an account, before anything about it changes. Takes weir.fold for the transaction.
CREATE FUNCTION weir.fold_account(p_account bigint) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE v_ids bigint[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    SELECT array_agg(i.id) INTO v_ids FROM weir.keys k JOIN weir.inbox i ON i.key = k.key WHERE k.account_id = p_account;
    RETURN CASE WHEN v_ids IS NULL THEN 0 ELSE weir.fold_rows(v_ids) END;
END $$;

-- Folds what the inbox holds of some keys of one node. The caller holds weir.fold.
CREATE FUNCTION weir.fold_node(p_node bigint, p_keys bigint[]) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE v_ids bigint[];
BEGIN
    SELECT array_agg(i.id) INTO v_ids FROM weir.inbox i WHERE i.key = ANY (p_keys) AND i.node = p_node;
    IF v_ids IS NOT NULL THEN
        PERFORM weir.fold_rows(v_ids);
    END IF;
END $$;

-- Sets a node's leases of some keys to what it has used: what it held goes back, an overshoot is counted.
-- The caller holds weir.fold and has folded the node's rows of these keys.
CREATE FUNCTION weir.settle_leases(p_node bigint, p_keys bigint[], p_cause text) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE r record;
BEGIN
    PERFORM FROM weir.quotas q WHERE q.key = ANY (p_keys) ORDER BY q.key FOR UPDATE;
    FOR r IN
        SELECT k.key, coalesce(l.lim, 0) AS lim, coalesce(d.used, 0) AS used, l.key IS NOT NULL AS leased
        FROM unnest(p_keys) k(key)
        JOIN weir.quotas q ON q.key = k.key
        LEFT JOIN weir.leases l ON l.key = k.key AND l.node = p_node
        LEFT JOIN weir.done d ON d.key = k.key AND d.node = p_node
        ORDER BY k.key
    LOOP
        CONTINUE WHEN NOT r.leased AND r.used = 0;
        UPDATE weir.quotas q SET granted = q.granted + r.used - r.lim WHERE q.key = r.key;
        INSERT INTO weir.leases (key, node, ver, lim, tight) VALUES (r.key, p_node, 1, r.used, true)
            ON CONFLICT (key, node) DO UPDATE SET ver = leases.ver + 1, lim = excluded.lim, tight = true;
        IF r.used > r.lim THEN
            INSERT INTO weir.overshoots (key, node, units, cause) VALUES (r.key, p_node, r.used - r.lim, p_cause);
        ELSIF r.used < r.lim THEN
            PERFORM pg_notify('weir_returned', r.key::text);
        END IF;
    END LOOP;
END $$;

-- Stores a node's cumulative usage of some keys and settles its leases with it, in one transaction: usage first.
-- Serves recovery of a dead node's journal, a rejoin, and a clean stop; at most 1,000 keys a call.
CREATE FUNCTION weir.settle_node(p_node bigint, p_keys bigint[], p_uptos bigint[], p_at timestamptz, p_cause text) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    INSERT INTO weir.inbox (node, key, upto, at)
        SELECT p_node, t.k, t.u, p_at FROM unnest(p_keys, p_uptos) AS t(k, u) JOIN weir.keys x ON x.key = t.k;
    PERFORM weir.fold_node(p_node, p_keys);
    PERFORM weir.settle_leases(p_node, p_keys, p_cause);
END $$;

-- The next keys of a node whose leases are not settled yet, at most p_most of them.
CREATE FUNCTION weir.unsettled(p_node bigint, p_most integer) RETURNS bigint[]
    LANGUAGE sql VOLATILE SET enable_seqscan = off AS $$
    SELECT array_agg(x.key) FROM (
        SELECT l.key FROM weir.leases l LEFT JOIN weir.done d ON d.key = l.key AND d.node = l.node
        WHERE l.node = p_node AND (NOT l.tight OR l.lim <> coalesce(d.used, 0))
        ORDER BY l.key LIMIT p_most) x
$$;

-- Returns a silent or stopped node's leases by what is stored of it, at most p_most keys a call. Returns how many.
CREATE FUNCTION weir.settle_chunk(p_node bigint, p_most integer, p_cause text) RETURNS bigint
    LANGUAGE plpgsql AS $$
DECLARE v_keys bigint[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    v_keys := weir.unsettled(p_node, p_most);
    IF v_keys IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM weir.fold_node(p_node, v_keys);
    PERFORM weir.settle_leases(p_node, v_keys, p_cause);
    RETURN cardinality(v_keys);
END $$;

-- Moves what an ended node used to node -1, at most p_most keys a call, and retires it with the last one.
-- Returns more, wait (the fold still holds rows of it) or done.
CREATE FUNCTION weir.retire_chunk(p_node bigint, p_most integer) RETURNS text
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE v_keys bigint[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    IF NOT EXISTS (SELECT FROM weir.nodes n WHERE n.id = p_node AND n.state IN ('stopped', 'recovered')) THEN
        RETURN 'done';
    END IF;
    SELECT array_agg(x.key) INTO v_keys FROM (
        SELECT y.key FROM (SELECT l.key FROM weir.leases l WHERE l.node = p_node
                           UNION SELECT d.key FROM weir.done d WHERE d.node = p_node) y ORDER BY y.key LIMIT p_most) x;
    IF v_keys IS NULL THEN
        IF EXISTS (SELECT FROM weir.inbox i WHERE i.node = p_node) THEN
            RETURN 'wait';
        END IF;
        UPDATE weir.nodes n SET state = 'retired' WHERE n.id = p_node;
        DELETE FROM weir.held h WHERE h.node = p_node;
        RETURN 'done';
    END IF;
    PERFORM weir.fold_node(p_node, v_keys);
    PERFORM FROM weir.quotas q WHERE q.key = ANY (v_keys) ORDER BY q.key FOR UPDATE;
    UPDATE weir.quotas q SET granted = q.granted + s.used - s.lim
    FROM (SELECT k.key, coalesce(l.lim, 0) AS lim, coalesce(d.used, 0) AS used
          FROM unnest(v_keys) k(key)
          LEFT JOIN weir.leases l ON l.key = k.key AND l.node = p_node
          LEFT JOIN weir.done d ON d.key = k.key AND d.node = p_node) s
    WHERE q.key = s.key AND s.used <> s.lim;
    INSERT INTO weir.leases AS x (key, node, lim, tight)
        SELECT d.key, -1, d.used, true FROM weir.done d WHERE d.node = p_node AND d.key = ANY (v_keys) ORDER BY d.key
        ON CONFLICT (key, node) DO UPDATE SET lim = x.lim + excluded.lim;
    INSERT INTO weir.done AS x (key, node, used)
        SELECT d.key, -1, d.used FROM weir.done d WHERE d.node = p_node AND d.key = ANY (v_keys) ORDER BY d.key
        ON CONFLICT (key, node) DO UPDATE SET used = x.used + excluded.used;
    DELETE FROM weir.leases l WHERE l.node = p_node AND l.key = ANY (v_keys);
    DELETE FROM weir.done d WHERE d.node = p_node AND d.key = ANY (v_keys);
    RETURN 'more';
END $$;

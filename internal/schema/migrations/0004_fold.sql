-- From nodes to totals: flush, the fold, and the ends of a node.

-- One batch of a node: append its cumulative usage, move its heartbeat and mark, read back what others used.
CREATE TYPE weir.flush_answer AS (
    state     text,          -- the node's state: rejoin unless live; NULL when the database does not know the node
    change    bigint,        -- the latest change number
    clock     timestamptz,   -- business time
    live      bigint,        -- live nodes
    keys      bigint[],      -- of the batch and of the watch list, with the five figures of each
    others    bigint[],      -- stored by other nodes, inbox included
    folded    bigint[],      -- folded, of all nodes
    free      bigint[],
    overage   bigint[],
    adjusted  bigint[],
    recalled  bigint[],      -- keys of this node that were called back within the last 2 s
    heartbeat bigint         -- this node's heartbeats as stored, this one included
);

-- What other nodes have in the inbox, under some keys at least: key by key, or, where the inbox is small against them,
-- all of it. STABLE, so that it reads with its caller's snapshot.
CREATE FUNCTION weir.pending_of_others(p_node bigint, p_keys bigint[]) RETURNS TABLE (key bigint, node bigint, upto bigint)
    LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    IF pg_relation_size('weir.inbox') <= 4096 * cardinality(p_keys)::bigint THEN
        RETURN QUERY SELECT i.key, i.node, max(i.upto) FROM weir.inbox i WHERE i.node <> p_node AND i.ctid >= '(0,0)' GROUP BY 1, 2;
    ELSE
        RETURN QUERY
        SELECT i.key, i.node, max(i.upto)
        FROM unnest(p_keys) AS x(k)
        CROSS JOIN LATERAL (SELECT y.key, y.node, y.upto FROM weir.inbox y WHERE y.key = x.k AND y.node <> p_node OFFSET 0) i
        GROUP BY 1, 2;
    END IF;
END $$;

CREATE FUNCTION weir.flush(p_node bigint, p_keys bigint[], p_uptos bigint[], p_at timestamptz, p_beat boolean, p_sealed timestamptz,
        p_applied bigint, p_held bigint[], p_watch bigint[]) RETURNS weir.flush_answer
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    a     weir.flush_answer;
    v_all bigint[] := p_keys;
BEGIN
    IF cardinality(p_watch) > 0 THEN
        v_all := ARRAY(SELECT DISTINCT x FROM unnest(p_keys || p_watch) x);
    END IF;
    IF cardinality(p_keys) > 0 THEN
        INSERT INTO weir.inbox (node, key, upto, at) SELECT p_node, t.k, t.u, p_at FROM unnest(p_keys, p_uptos) AS t(k, u);
        PERFORM pg_notify('weir_inbox', '');
    END IF;
    IF p_beat THEN
        UPDATE weir.nodes n SET heartbeat = n.heartbeat + 1, heartbeat_at = clock_timestamp(),
               sealed = greatest(n.sealed, p_sealed), applied = greatest(n.applied, p_applied)
        WHERE n.id = p_node AND n.state = 'live';
        -- A batch that was given up for lost, and comes after a later one, does not know what is held by now.
        IF EXISTS (SELECT FROM weir.nodes n WHERE n.id = p_node AND n.sealed <= p_sealed) THEN
            DELETE FROM weir.held h WHERE h.node = p_node AND NOT h.key = ANY (p_held);
            INSERT INTO weir.held (node, key) SELECT p_node, k FROM unnest(p_held) k ON CONFLICT DO NOTHING;
        END IF;
    ELSE
        PERFORM FROM weir.nodes n WHERE n.id = p_node FOR SHARE;  -- as the heartbeat does: whose state is moved waits for this batch
    END IF;
    SELECT n.state, n.heartbeat INTO a.state, a.heartbeat FROM weir.nodes n WHERE n.id = p_node;
    IF a.state IN ('reaping', 'reaped') AND cardinality(p_keys) > 0 THEN
        UPDATE weir.nodes n SET late = true WHERE n.id = p_node AND NOT n.late;
    END IF;
    SELECT c.number INTO a.change FROM weir.changes c;
    a.clock := weir.clock();
    a.live := weir.live_nodes(p_node, true);
    -- One statement for totals and inbox: a fold that commits in between would be missed by both.
    -- Used by other nodes is, for each, the more of what is folded and what is in the inbox.
    SELECT array_agg(o.key), array_agg(o.units), array_agg(t.used), array_agg(t.free), array_agg(t.overage), array_agg(t.adjusted)
    INTO a.keys, a.others, a.folded, a.free, a.overage, a.adjusted
    FROM (SELECT n.key, sum(n.upto)::bigint AS units
          FROM (SELECT u.key, greatest(0, max(u.upto)) AS upto, bool_or(u.asked) AS asked
                FROM (SELECT x.k AS key, NULL::bigint AS node, 0::bigint AS upto, true AS asked FROM unnest(v_all) AS x(k)
                      UNION ALL
                      SELECT d.key, d.node, d.used, false FROM unnest(v_all) AS x(k)
                      CROSS JOIN LATERAL (SELECT y.key, y.node, y.used FROM weir.done y WHERE y.key = x.k AND y.node <> p_node OFFSET 0) d
                      UNION ALL
                      SELECT i.key, i.node, i.upto, false FROM weir.pending_of_others(p_node, v_all) i) u
                GROUP BY u.key, u.node) n
          GROUP BY n.key HAVING bool_or(n.asked)) o
    CROSS JOIN LATERAL (SELECT * FROM weir.totals y WHERE y.key = o.key LIMIT 1) t;
    IF p_beat THEN
        SELECT array_agg(r.key) INTO a.recalled FROM weir.recalls r
        JOIN weir.leases l ON l.key = r.key AND l.node = p_node AND NOT l.tight
        WHERE r.at > clock_timestamp() - interval '2 s';
    END IF;
    RETURN a;
END $$;

-- Units by the minute in which they were counted, of all accounts, for the last days. numeric: a sum that no key could
-- hold is no reason to park a row.
CREATE TABLE weir.pace (
    minute     timestamptz NOT NULL,
    feature_id integer NOT NULL,
    units      numeric NOT NULL,
    PRIMARY KEY (minute, feature_id)
) WITH (fillfactor = 70);

-- Folds exactly these inbox rows. The caller has locked weir.fold in an earlier statement: in the same one the lock
-- would come after the snapshot. A fold takes the maximum per node and key, so repeats and reorderings add nothing.
-- Rows that it changes are found by their places: under weir.fold nobody else moves them, and no plan can read a table.
CREATE FUNCTION weir.fold_rows(p_rows tid[]) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    WITH gone AS MATERIALIZED (
        DELETE FROM weir.inbox i WHERE i.ctid = ANY (p_rows)
        RETURNING i.node, i.key, i.upto, i.at, i.upto BETWEEN 0 AND weir.boundless() AS in_range,
            i.node IN (0, -1) OR i.node IN (
                SELECT n.id FROM weir.nodes n WHERE n.state NOT IN ('retired', 'given_up', 'internal') AND n.state <> 'retiring') AS counts),
    told AS MATERIALIZED (  -- per day of the batch, in UTC
        SELECT g.key, g.node, g.day, g.upto, g.at, d.place, d.used, d.place IS NULL AND k.key IS NULL AS unknown,
               greatest(0, g.upto - greatest(coalesce(d.used, 0), coalesce(g.before, 0))) AS d
        FROM (SELECT x.key, x.node, x.day, max(x.upto) AS upto, max(x.at) AS at,
                     max(max(x.upto)) OVER (PARTITION BY x.key, x.node ORDER BY x.day ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
              FROM (SELECT y.key, y.node, (y.at AT TIME ZONE 'UTC')::date AS day, y.upto, y.at FROM gone y WHERE y.in_range AND y.counts) x
              GROUP BY 1, 2, 3) g
        LEFT JOIN LATERAL (SELECT y.ctid AS place, y.used FROM weir.done y WHERE y.key = g.key AND y.node = g.node LIMIT 1) d ON true
        LEFT JOIN LATERAL (SELECT y.key FROM weir.keys y WHERE d.place IS NULL AND y.key = g.key LIMIT 1) k ON true),
    parked AS (
        INSERT INTO weir.inbox_parked (node, key, upto, at, reason)
        SELECT g.node, g.key, g.upto, g.at,
               CASE WHEN NOT g.in_range THEN 'units out of range'
                    WHEN (SELECT k.key FROM weir.keys k WHERE k.key = g.key) IS NULL THEN 'unknown key'
                    ELSE coalesce((SELECT 'node is ' || n.state FROM weir.nodes n WHERE n.id = g.node), 'unknown node') END
        FROM gone g
        WHERE NOT g.in_range OR NOT g.counts OR g.key = ANY ((SELECT array_agg(t.key) FROM told t WHERE t.unknown)::bigint[])),
    new_done AS (
        INSERT INTO weir.done (key, node, used)
        SELECT t.key, t.node, max(t.upto) FROM told t WHERE t.place IS NULL AND NOT t.unknown GROUP BY 1, 2),
    old_done AS (
        UPDATE weir.done d SET used = s.upto
        FROM (SELECT t.place, max(t.upto) AS upto FROM told t WHERE t.upto > t.used GROUP BY 1) s
        WHERE d.ctid = s.place),
    split AS MATERIALIZED (  -- counted forward: included units first
        SELECT s.key, s.day, s.d, s.total, s.at, s.last, h.place AS history, t.place AS totals, k.included, k.feature_id, k.billability, k.allowance, k.warn_at,
               CASE WHEN k.included IS NULL THEN s.d ELSE least(s.d, greatest(0, k.included - t.free - s.before))::bigint END AS free,
               CASE WHEN k.included IS NULL THEN s.total ELSE least(s.total, greatest(0, k.included - t.free))::bigint END AS all_free,
               t.free + t.overage + s.total AS stands,
               t.free + t.overage + s.total >= t.warn_next OR k.allowance IS DISTINCT FROM t.warned_of AS looks
        FROM (SELECT c.key, c.day, sum(c.d)::bigint AS d, max(c.at) AS at,
                     (sum(sum(c.d)) OVER (PARTITION BY c.key ORDER BY c.day ROWS UNBOUNDED PRECEDING) - sum(c.d))::bigint AS before,
                     (sum(sum(c.d)) OVER key)::bigint AS total, c.day = max(c.day) OVER key AS last
              FROM told c WHERE c.d > 0 AND NOT c.unknown
              GROUP BY 1, 2
              WINDOW key AS (PARTITION BY c.key ORDER BY c.day ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)) s
        CROSS JOIN LATERAL (SELECT * FROM weir.keys y WHERE y.key = s.key LIMIT 1) k
        CROSS JOIN LATERAL (SELECT y.ctid AS place, y.free, y.overage, y.warn_next, y.warned_of FROM weir.totals y WHERE y.key = s.key LIMIT 1) t
        LEFT JOIN LATERAL (SELECT y.ctid AS place FROM weir.history y WHERE y.key = s.key AND y.day = s.day LIMIT 1) h ON true),
    new_days AS (
        INSERT INTO weir.history (key, day, used, overage) SELECT s.key, s.day, s.d, s.d - s.free FROM split s WHERE s.history IS NULL),
    old_days AS (
        UPDATE weir.history h SET used = h.used + s.d, overage = h.overage + s.d - s.free FROM split s WHERE h.ctid = s.history),
    paced AS (
        INSERT INTO weir.pace AS p (minute, feature_id, units)
        SELECT date_trunc('minute', s.at), s.feature_id, sum(s.d) FROM split s GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (minute, feature_id) DO UPDATE SET units = p.units + excluded.units),
    moved AS (
        UPDATE weir.totals t SET
            used = t.used + s.total, free = t.free + s.all_free, overage = t.overage + s.total - s.all_free,
            not_billable = t.not_billable + CASE WHEN s.billability = 'yes' THEN 0 ELSE s.total - s.all_free END,
            awaiting = t.awaiting + CASE WHEN s.billability = 'awaiting' THEN s.total - s.all_free ELSE 0 END,
            warn_next = CASE WHEN s.looks THEN weir.next_mark(s.warn_at, s.included, s.allowance, s.stands) ELSE t.warn_next END, warned_of = s.allowance
        FROM split s WHERE s.last AND t.ctid = s.totals),
    crossed AS MATERIALIZED (  -- thresholds that are reached; of several in one jump the highest is told
        SELECT x.*, row_number() OVER (PARTITION BY x.key ORDER BY x.percent::numeric * x.allowance DESC, x.allowance) = 1 AS told
        FROM (SELECT s.key, w.percent, s.allowance, s.stands, s.at
              FROM split s CROSS JOIN LATERAL unnest(s.warn_at) AS w(percent)
              WHERE s.last AND s.looks AND s.allowance > 0 AND s.stands::numeric * 100 >= w.percent::numeric * s.allowance
              UNION ALL
              SELECT s.key, 100, s.included, s.stands, s.at FROM split s
              WHERE s.last AND s.looks AND s.included > 0 AND s.included < s.allowance AND s.stands >= s.included AND s.warn_at <> '{}') x)
    INSERT INTO weir.warnings (key, threshold, allowance, used, told, at)
    SELECT c.key, c.percent, c.allowance, c.stands, c.told, c.at FROM crossed c
    WHERE NOT EXISTS (SELECT FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id WHERE k.key = c.key AND p.state = 'void')
    ORDER BY c.key, c.percent::numeric * c.allowance
    ON CONFLICT (key, allowance, threshold) DO NOTHING;
    IF FOUND THEN
        PERFORM pg_notify('weir_warning', '');
    END IF;
END $$;

-- Folds rows, and parks the ones that the database itself refuses (a sum that overflows) while the rest goes on.
CREATE FUNCTION weir.fold_or_park(p_rows tid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_half   integer := cardinality(p_rows) / 2;
    v_reason text;
BEGIN
    BEGIN
        PERFORM weir.fold_rows(p_rows);
        RETURN;
    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
        v_reason := sqlerrm;
    END;
    IF v_half = 0 THEN
        WITH gone AS (DELETE FROM weir.inbox i WHERE i.ctid = ANY (p_rows) RETURNING i.node, i.key, i.upto, i.at)
        INSERT INTO weir.inbox_parked (node, key, upto, at, reason) SELECT g.node, g.key, g.upto, g.at, v_reason FROM gone g;
        RETURN;
    END IF;
    PERFORM weir.fold_or_park(p_rows[:v_half]);
    PERFORM weir.fold_or_park(p_rows[v_half + 1:]);
END $$;

-- One chunk of the fold: up to p_most rows of all nodes, key by key from where the last chunk ended, and round again.
-- A chunk that takes fewer than p_most rows has taken all that was committed when it began. Returns how many it took.
CREATE FUNCTION weir.fold_chunk(p_most integer) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    v_from bigint;
    v_next bigint;
    v_rows tid[];
    v_more tid[];
BEGIN
    SELECT f.cursor INTO v_from FROM weir.fold f FOR UPDATE;
    SELECT array_agg(i.ctid), max(i.key) INTO v_rows, v_next
        FROM (SELECT x.ctid, x.key FROM weir.inbox x WHERE x.key >= v_from ORDER BY x.key LIMIT p_most) i;
    IF coalesce(cardinality(v_rows), 0) < p_most THEN
        SELECT array_agg(i.ctid), max(i.key) INTO v_more, v_next
            FROM (SELECT x.ctid, x.key FROM weir.inbox x WHERE x.key < v_from ORDER BY x.key LIMIT p_most - coalesce(cardinality(v_rows), 0)) i;
        v_rows := v_rows || v_more;
    END IF;
    IF v_rows IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM weir.fold_or_park(v_rows);
    UPDATE weir.fold SET folded = folded + cardinality(v_rows), cursor = CASE WHEN cardinality(v_rows) < p_most THEN 0 ELSE coalesce(v_next, 0) END;
    RETURN cardinality(v_rows);
END $$;

-- Folds what the inbox holds of an account, before anything about it changes. Takes weir.fold for the transaction.
CREATE FUNCTION weir.fold_account(p_account bigint) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE v_rows tid[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    SELECT array_agg(i.place) INTO v_rows FROM weir.keys k
        CROSS JOIN LATERAL (SELECT y.ctid AS place FROM weir.inbox y WHERE y.key = k.key OFFSET 0) i WHERE k.account_id = p_account;
    IF v_rows IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM weir.fold_or_park(v_rows);
    RETURN cardinality(v_rows);
END $$;

-- Folds what the inbox holds of some keys of one node. The caller holds weir.fold.
CREATE FUNCTION weir.fold_node(p_node bigint, p_keys bigint[]) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE v_rows tid[];
BEGIN
    SELECT array_agg(i.ctid) INTO v_rows FROM weir.inbox i WHERE i.key = ANY (p_keys) AND i.node = p_node;
    IF v_rows IS NOT NULL THEN
        PERFORM weir.fold_or_park(v_rows);
    END IF;
END $$;

-- Sets a node's leases of some keys to what it has used: what it held goes back, an overshoot is counted.
-- The caller holds weir.fold and has folded the node's rows of these keys.
CREATE FUNCTION weir.settle_leases(p_node bigint, p_keys bigint[], p_cause text) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_back bigint[];
    v_key  bigint;
BEGIN
    PERFORM FROM weir.quotas q WHERE q.key = ANY (p_keys) ORDER BY q.key FOR UPDATE;
    WITH s AS MATERIALIZED (
        SELECT q.key, coalesce(l.lim, 0) AS lim, coalesce(d.used, 0) AS used
        FROM weir.quotas q
        LEFT JOIN weir.leases l ON l.key = q.key AND l.node = p_node
        LEFT JOIN weir.done d ON d.key = q.key AND d.node = p_node
        WHERE q.key = ANY (p_keys) AND (l.key IS NOT NULL OR d.key IS NOT NULL)),
    granted AS (
        UPDATE weir.quotas q SET granted = q.granted + s.used - s.lim FROM s WHERE q.key = s.key AND s.used <> s.lim),
    leased AS (
        INSERT INTO weir.leases (key, node, ver, lim, tight) SELECT s.key, p_node, 1, s.used, true FROM s
        ON CONFLICT (key, node) DO UPDATE SET ver = leases.ver + 1, lim = excluded.lim, tight = true),
    beyond AS (
        INSERT INTO weir.overshoots (key, node, units, cause) SELECT s.key, p_node, s.used - s.lim, p_cause FROM s WHERE s.used > s.lim)
    SELECT array_agg(s.key) INTO v_back FROM s WHERE s.used < s.lim;
    FOREACH v_key IN ARRAY coalesce(v_back, '{}') LOOP
        PERFORM pg_notify('weir_returned', v_key::text);
    END LOOP;
END $$;

-- Stores a node's cumulative usage of some keys and settles its leases with it, in one transaction: usage first.
-- Serves recovery of a dead node's journal, a rejoin, and a clean stop; at most 1,000 keys a call.
CREATE FUNCTION weir.settle_node(p_node bigint, p_keys bigint[], p_uptos bigint[], p_at timestamptz, p_cause text) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    INSERT INTO weir.inbox (node, key, upto, at) SELECT p_node, t.k, t.u, p_at FROM unnest(p_keys, p_uptos) AS t(k, u);
    PERFORM weir.fold_node(p_node, p_keys);
    IF EXISTS (SELECT FROM weir.nodes n WHERE n.id = p_node AND n.state NOT IN ('retiring', 'retired', 'given_up')) THEN
        PERFORM weir.settle_leases(p_node, p_keys, p_cause);
    END IF;
END $$;

-- Returns a silent or stopped node's leases by what is stored of it, at most p_most keys a call, from above a key
-- onwards. Returns the key up to which it came, or NULL when none is left above it. It looks at leases and usage part by
-- part, at each row once in all calls together, and at twenty parts a call: while it holds weir.fold nothing is folded.
-- A reaper names the number that it watched: once it has moved somebody else ends the node, and nothing is returned.
CREATE FUNCTION weir.settle_chunk(p_node bigint, p_after bigint, p_most integer, p_cause text, p_heartbeat bigint DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_part integer := greatest(1, p_most / 2);  -- of each table
    v_from bigint := p_after;
    v_upto bigint;
    v_keys bigint[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    IF p_heartbeat IS NOT NULL THEN
        PERFORM FROM weir.nodes n WHERE n.id = p_node AND n.heartbeat = p_heartbeat FOR SHARE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    FOR i IN 1 .. 20 LOOP
        v_upto := least(
            (SELECT l.key FROM weir.leases l WHERE l.node + 0 = p_node AND l.key + 0 > v_from ORDER BY l.key + 0 OFFSET v_part - 1 LIMIT 1),
            (SELECT d.key FROM weir.done d WHERE d.node + 0 = p_node AND d.key + 0 > v_from ORDER BY d.key + 0 OFFSET v_part - 1 LIMIT 1));
        SELECT array_agg(x.key ORDER BY x.key) INTO v_keys FROM (
            SELECT l.key
            FROM (SELECT y.key, y.lim, y.tight FROM weir.leases y
                  WHERE y.node + 0 = p_node AND y.key + 0 > v_from AND y.key + 0 <= coalesce(v_upto, 9223372036854775807) OFFSET 0) l
            LEFT JOIN LATERAL (SELECT y.used FROM weir.done y WHERE y.key = l.key AND y.node = p_node LIMIT 1) d ON true
            WHERE NOT l.tight OR l.lim <> coalesce(d.used, 0)
               OR (SELECT i.key FROM weir.inbox i WHERE i.key = l.key AND i.node = p_node LIMIT 1) IS NOT NULL
            UNION ALL
            SELECT d.key
            FROM (SELECT y.key FROM weir.done y
                  WHERE y.node + 0 = p_node AND y.key + 0 > v_from AND y.key + 0 <= coalesce(v_upto, 9223372036854775807) OFFSET 0) d
            WHERE (SELECT l.key FROM weir.leases l WHERE l.key = d.key AND l.node = p_node LIMIT 1) IS NULL) x;
        IF v_keys IS NOT NULL THEN
            PERFORM weir.fold_node(p_node, v_keys);
            PERFORM weir.settle_leases(p_node, v_keys, p_cause);
        END IF;
        EXIT WHEN v_keys IS NOT NULL OR v_upto IS NULL;
        v_from := v_upto;
    END LOOP;
    RETURN v_upto;
END $$;

-- Moves a node's state. Waits for the node's asks and gives that are under way, so that none commits later; a flush
-- that hangs in its transaction makes it fail after 5 s.
CREATE FUNCTION weir.move_node(p_node bigint, p_from text[], p_to text, p_heartbeat bigint) RETURNS boolean
    LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
BEGIN
    PERFORM weir.node_gate(p_node, true);
    UPDATE weir.nodes n SET state = p_to,
        ended_at = CASE WHEN p_to = 'live' THEN NULL ELSE coalesce(n.ended_at, weir.clock()) END,
        -- Back to life is a heartbeat, and so is the begin of a recovery, which goes by no number: who watched the old
        -- one stand still must begin anew.
        heartbeat = n.heartbeat + CASE WHEN p_to = 'live' OR p_to = 'reaping' AND p_heartbeat IS NULL THEN 1 ELSE 0 END,
        heartbeat_at = CASE WHEN p_to = 'live' THEN clock_timestamp() ELSE n.heartbeat_at END,
        late = n.late AND p_to = 'reaped'
    WHERE n.id = p_node AND n.state = ANY (p_from) AND n.heartbeat = coalesce(p_heartbeat, n.heartbeat);
    RETURN FOUND;
END $$;

-- Gives a reaped node up: what it flushed is folded, whatever comes of it later is parked.
CREATE FUNCTION weir.give_up_node(p_node bigint) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE v_rows tid[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    IF NOT weir.move_node(p_node, '{reaped}', 'reaped', NULL) THEN
        RETURN false;
    END IF;
    SELECT array_agg(i.ctid) INTO v_rows FROM weir.inbox i WHERE i.node = p_node;
    IF v_rows IS NOT NULL THEN
        PERFORM weir.fold_or_park(v_rows);
    END IF;
    RETURN weir.move_node(p_node, '{reaped}', 'given_up', NULL);
END $$;

-- Moves what an ended node used to node -1, at most p_most keys a call, and retires it with the last one.
-- Returns more, wait (the fold still holds rows of it) or done.
CREATE FUNCTION weir.retire_chunk(p_node bigint, p_most integer) RETURNS text
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_state text;
    v_keys  bigint[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    SELECT n.state INTO v_state FROM weir.nodes n WHERE n.id = p_node;
    IF v_state IN ('stopped', 'recovered') THEN
        IF EXISTS (SELECT FROM weir.inbox i WHERE i.node = p_node) THEN
            RETURN 'wait';
        END IF;
        -- From here on its rows are parked: a repeated one would count again once its done row is gone.
        PERFORM weir.move_node(p_node, ARRAY[v_state], 'retiring', NULL);
    ELSIF v_state IS NULL OR v_state NOT IN ('retiring', 'given_up') THEN
        RETURN 'done';
    END IF;
    SELECT array_agg(x.key) INTO v_keys FROM (
        SELECT y.key FROM ((SELECT l.key FROM weir.leases l WHERE l.node + 0 = p_node ORDER BY l.key + 0 LIMIT p_most)
                           UNION (SELECT d.key FROM weir.done d WHERE d.node + 0 = p_node ORDER BY d.key + 0 LIMIT p_most)) y
        ORDER BY y.key LIMIT p_most) x;
    IF v_keys IS NULL THEN
        PERFORM weir.move_node(p_node, '{retiring}', 'retired', NULL);
        DELETE FROM weir.held h WHERE h.node = p_node;
        RETURN 'done';
    END IF;
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

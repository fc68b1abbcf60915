-- The lease protocol: docs/leases.md. Every function takes the quota rows in key order first.

CREATE TYPE weir.lease_answer AS (
    key    bigint,
    status text,     -- ok, adopt (the version differed: the stored state stands), ended, rejoin, unknown
    ver    bigint,
    lim    bigint,
    tight  boolean,
    got    bigint,   -- granted by this call
    others boolean,  -- refused for now: units are out at other nodes and were called back
    silent boolean,  -- what would suffice lies with a node that has missed its heartbeats
    bound  bigint,   -- refused: a call for more than this cannot pass until something changes
    used   bigint    -- what all nodes have stored under the key, when refused; else NULL
);

-- Nodes that share a ceiling: live ones, heard of within 3 s where the asker can judge that; the asker always.
CREATE FUNCTION weir.live_nodes(p_node bigint, p_judge boolean) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT greatest(1, count(*)) FROM weir.nodes n
        WHERE n.state = 'live' AND (n.id = p_node OR NOT p_judge OR n.heartbeat_at > clock_timestamp() - interval '3 s'));
END $$;

-- Held shared by every ask and give of a node until it commits, and alone by who moves the node's state: once a node
-- is no longer live, no grant that was decided before can commit after.
CREATE FUNCTION weir.node_gate(p_node bigint, p_alone boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_alone THEN
        PERFORM pg_advisory_xact_lock(1463110995, hashint8(p_node));
    ELSE
        PERFORM pg_advisory_xact_lock_shared(1463110995, hashint8(p_node));
    END IF;
END $$;

-- What is stored under a key: folded, and still in the inbox. STABLE: it reads with the caller's snapshot, so that a
-- fold that commits in between is seen whole or not at all.
CREATE FUNCTION weir.stored(p_key bigint) RETURNS bigint LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
BEGIN
    RETURN (SELECT coalesce((SELECT t.used FROM weir.totals t WHERE t.key = p_key), 0) + coalesce((
        SELECT sum(greatest(0, x.upto - coalesce(d.used, 0)))
        FROM (SELECT i.node, max(i.upto) AS upto FROM weir.inbox i WHERE i.key = p_key GROUP BY i.node) x
        LEFT JOIN weir.done d ON d.key = p_key AND d.node = x.node), 0)::bigint);
END $$;

-- Why n units do not pass under a key for a node that holds nothing back: another node holds them loosely, or nobody.
CREATE TYPE weir.shortage AS (
    others boolean,  -- what the heard nodes hold loosely would do; it was called back
    silent boolean,  -- it takes what a node holds that has missed its heartbeats; nobody was called back in vain
    bound  bigint    -- neither: a call for more than this cannot pass until something changes
);

-- Looks for n units at other nodes and calls them back where that can help. The caller holds the quota row's lock.
CREATE FUNCTION weir.call_back(p_node bigint, p_judge boolean, p_key bigint, p_room bigint, p_n bigint) RETURNS weir.shortage
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    s       weir.shortage;
    v_out   bigint;
    v_heard bigint;
BEGIN
    s.others := false; s.silent := false;
    SELECT coalesce(sum(o.units), 0), coalesce(sum(o.units) FILTER (WHERE o.heard), 0) INTO v_out, v_heard
    FROM (SELECT greatest(0, x.lim - coalesce(d.used, 0)) AS units,
                 n.state = 'live' AND (NOT p_judge OR n.heartbeat_at > clock_timestamp() - interval '3 s') AS heard
          FROM weir.leases x
          JOIN weir.nodes n ON n.id = x.node
          LEFT JOIN weir.done d ON d.key = x.key AND d.node = x.node
          WHERE x.key = p_key AND x.node <> p_node AND NOT x.tight) o;
    IF p_n > p_room + v_out THEN
        s.bound := greatest(0, p_room + v_out);  -- hopeless: nobody is called for it
    ELSE
        s.others := true;
        s.silent := p_n > p_room + v_heard;
        IF NOT s.silent THEN
            PERFORM weir.recall(p_key, p_node);
            UPDATE weir.quotas q SET strict_until = clock_timestamp() + interval '300 ms' WHERE q.key = p_key;  -- longer than an asker waits
        END IF;
    END IF;
    RETURN s;
END $$;

-- One key of an ask or a give. The caller holds the quota row's lock and has checked the node.
CREATE FUNCTION weir.lease_one(p_node bigint, p_judge boolean, p_nodes bigint, p_give boolean, p_key bigint, p_ver bigint,
        p_back bigint, p_over bigint, p_n bigint, p_want bigint, p_waiting bigint) RETURNS weir.lease_answer
    LANGUAGE plpgsql AS $$
DECLARE
    a         weir.lease_answer;
    q         weir.quotas;
    l         weir.leases;
    s         weir.shortage;
    v_lim     bigint;
    v_granted bigint;
    v_room    bigint;
    v_strict  boolean;
BEGIN
    a.key := p_key; a.status := 'ok'; a.got := 0; a.others := false; a.silent := false;
    SELECT * INTO q FROM weir.quotas x WHERE x.key = p_key;
    IF NOT FOUND THEN
        a.status := 'unknown';
        RETURN a;
    END IF;
    SELECT * INTO l FROM weir.leases x WHERE x.key = p_key AND x.node = p_node;
    IF NOT FOUND THEN
        l := (p_key, p_node, 0, 0, false)::weir.leases;
    END IF;
    v_lim := l.lim - p_back + p_over;
    IF l.ver <> p_ver OR p_back < 0 OR p_over < 0 OR p_n < 0 OR v_lim < 0 THEN
        -- What cannot be true of the stored lease is not applied either: the node takes the stored state and goes on.
        a.status := 'adopt'; a.ver := l.ver; a.lim := l.lim; a.tight := l.tight;
        RETURN a;
    END IF;
    v_granted := q.granted - p_back + p_over;
    v_room := q.ceiling - v_granted;
    v_strict := q.strict_until > clock_timestamp();
    a.tight := l.tight;
    IF p_give THEN
        a.tight := true;
    ELSIF q.ended THEN
        a.status := 'ended';
        a.tight := true;
    ELSIF p_n > 0 AND v_room >= p_n THEN
        a.got := greatest(p_n, CASE WHEN v_strict THEN least(p_waiting, v_room / p_nodes) ELSE least(p_want, v_room / (2 * p_nodes)) END);
        a.tight := a.got = p_n AND p_waiting > 0; -- else nobody spends it at once
    ELSIF p_n > 0 THEN
        a.tight := true;
        s := weir.call_back(p_node, p_judge, p_key, v_room, p_n);
        a.others := s.others; a.silent := s.silent; a.bound := s.bound;
        IF NOT s.others THEN
            PERFORM weir.note_refusal(p_key, p_n);
        END IF;
        a.used := weir.stored(p_key);
    ELSIF NOT v_strict AND v_room > 0 THEN
        a.got := greatest(0, least(p_want, v_room / (2 * p_nodes)));
        a.tight := l.tight AND a.got = 0;
    END IF;
    v_lim := v_lim + a.got;
    UPDATE weir.quotas x SET granted = v_granted + a.got WHERE x.key = p_key;
    INSERT INTO weir.leases (key, node, ver, lim, tight) VALUES (p_key, p_node, l.ver + 1, v_lim, a.tight)
        ON CONFLICT (key, node) DO UPDATE SET ver = excluded.ver, lim = excluded.lim, tight = excluded.tight;
    IF p_give THEN
        PERFORM pg_notify('weir_returned', p_key::text);
    END IF;
    a.ver := l.ver + 1;
    a.lim := v_lim;
    RETURN a;
END $$;

-- ask and give for several keys in one round trip; several statements inside, so that each sees what committed
-- while it waited for the lock. Keys must be distinct.
CREATE FUNCTION weir.lease(p_node bigint, p_judge boolean, p_give boolean, p_keys bigint[], p_vers bigint[], p_backs bigint[],
        p_overs bigint[], p_ns bigint[], p_wants bigint[], p_waitings bigint[]) RETURNS SETOF weir.lease_answer
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    a       weir.lease_answer;
    v_state text;
    v_nodes bigint;
BEGIN
    PERFORM weir.node_gate(p_node, false);
    PERFORM FROM weir.quotas q WHERE q.key = ANY (p_keys) ORDER BY q.key FOR UPDATE;
    SELECT n.state INTO v_state FROM weir.nodes n WHERE n.id = p_node;
    v_nodes := weir.live_nodes(p_node, p_judge);
    FOR i IN 1 .. cardinality(p_keys) LOOP
        IF v_state IS DISTINCT FROM 'live' THEN
            a := NULL;
            a.key := p_keys[i]; a.status := 'rejoin'; a.got := 0; a.others := false; a.silent := false;
        ELSE
            a := weir.lease_one(p_node, p_judge, v_nodes, p_give, p_keys[i], p_vers[i], p_backs[i], p_overs[i], p_ns[i], p_wants[i], p_waitings[i]);
        END IF;
        RETURN NEXT a;
    END LOOP;
END $$;

-- What a node needs to know of an account at an instant: the keys of the period that holds it and of the next one.
CREATE TYPE weir.loaded_key AS (
    change      bigint,   -- the change number under which this was read
    account_id  bigint,
    account     text,
    period_id   bigint,
    starts      timestamptz,
    ends        timestamptz,  -- the admission's end: the cut, where there is one
    plan        text,
    catalog     bigint,
    feature     text,
    key         bigint,
    included    bigint,
    maximum     bigint,
    on_exceeded text,
    when_away   text,
    enforce     text,
    in_plan     boolean,
    ceiling     bigint,
    used        bigint,   -- folded, of all nodes, without this node
    free        bigint,
    overage     bigint,
    adjusted    bigint,
    folded      bigint,   -- folded, of all nodes
    own         bigint,   -- stored by this node
    ver         bigint,   -- this node's lease, 0 where there is none
    lim         bigint,
    tight       boolean,
    shadow      boolean   -- nothing is refused
);

-- The plans in shadow mode, by the catalog that counts.
CREATE FUNCTION weir.shadow_plans() RETURNS text[] LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN  -- plpgsql keeps the plan: first contacts come through here
    RETURN ARRAY(SELECT p.key FROM (SELECT c.body FROM weir.catalogs c ORDER BY c.number DESC LIMIT 1) c
                 CROSS JOIN LATERAL jsonb_each(c.body -> 'plans') p WHERE (p.value ->> 'shadow')::boolean);
END $$;

-- Whether calls are decided and recorded, and none is refused: by the account's own flag, or by the plan of its period.
-- Who looks at many accounts reads weir.shadow_plans() once and hands it over.
CREATE FUNCTION weir.in_shadow(account boolean, plan text, plans text[] DEFAULT weir.shadow_plans()) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT account OR plan = ANY (plans) $$;

CREATE FUNCTION weir.load(p_node bigint, p_accounts bigint[], p_at timestamptz) RETURNS SETOF weir.loaded_key
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_change bigint;
    v_shadow text[];
BEGIN
    -- Read first, in a statement of its own: what is loaded is at least as new as this number.
    SELECT c.number INTO v_change FROM weir.changes c;
    v_shadow := weir.shadow_plans();
    RETURN QUERY
    SELECT v_change, a.id, a.account, p.id, p.starts, coalesce(p.cut, p.ends), p.plan, p.catalog, coalesce(f.name, ''), coalesce(k.key, 0),
           k.included,
           CASE WHEN weir.overage_open(k.on_exceeded, k.billability, k.when_not_billable) THEN least(k.maximum, k.spending_cap) ELSE 0 END,
           coalesce(k.on_exceeded, ''), coalesce(k.when_away, ''), coalesce(k.enforce, ''), coalesce(k.in_plan, false), coalesce(q.ceiling, 0),
           coalesce(t.used, 0) - coalesce(d.used, 0) + inbox.others, coalesce(t.free, 0), coalesce(t.overage, 0), coalesce(t.adjusted, 0),
           coalesce(t.used, 0), greatest(coalesce(d.used, 0), inbox.own), coalesce(l.ver, 0), coalesce(l.lim, 0), coalesce(l.tight, false), weir.in_shadow(a.shadow, p.plan, v_shadow)
    FROM unnest(p_accounts) AS x(id)
    CROSS JOIN LATERAL (SELECT * FROM weir.accounts y WHERE y.id = x.id LIMIT 1) a
    CROSS JOIN LATERAL (SELECT * FROM weir.periods y WHERE y.account_id = x.id AND y.state <> 'void' AND coalesce(y.cut, y.ends) > p_at OFFSET 0) p
    -- A plan without quotas has periods without keys: they come with an empty feature.
    LEFT JOIN LATERAL (SELECT * FROM weir.keys y WHERE y.period_id = p.id OFFSET 0) k ON true
    LEFT JOIN weir.features f ON f.id = k.feature_id
    LEFT JOIN LATERAL (SELECT * FROM weir.quotas y WHERE y.key = k.key LIMIT 1) q ON true
    LEFT JOIN LATERAL (SELECT * FROM weir.totals y WHERE y.key = k.key LIMIT 1) t ON true
    LEFT JOIN LATERAL (SELECT * FROM weir.leases y WHERE y.key = k.key AND y.node = p_node LIMIT 1) l ON true
    LEFT JOIN LATERAL (SELECT * FROM weir.done y WHERE y.key = k.key AND y.node = p_node LIMIT 1) d ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(greatest(0, i.upto - coalesce(e.used, 0))) FILTER (WHERE i.node <> p_node), 0)::bigint AS others,
               coalesce(max(i.upto) FILTER (WHERE i.node = p_node), 0) AS own
        FROM (SELECT b.node, max(b.upto) AS upto FROM weir.inbox b WHERE b.key = k.key GROUP BY b.node) i
        LEFT JOIN LATERAL (SELECT y.used FROM weir.done y WHERE y.key = k.key AND y.node = i.node LIMIT 1) e ON true) inbox
    ORDER BY a.id, p.starts, k.key;
END $$;

-- First contacts of a node: accounts, their periods, the next ones, keys, and a first lease under one key of each, in
-- one round trip. Accounts are distinct; each has its feature, the units wanted now, the least that the lease should
-- hold, and what all callers at the node wait for.
CREATE FUNCTION weir.contact(p_node bigint, p_judge boolean, p_at timestamptz, p_accounts text[], p_features text[], p_ns bigint[],
        p_wants bigint[], p_waitings bigint[]) RETURNS SETOF weir.loaded_key
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_ids      bigint[];
    v_periods  bigint[];
    v_ends     timestamptz[];
    v_keys     bigint[];
    v_ns       bigint[];
    v_wants    bigint[];
    v_waitings bigint[];
    v_given    bigint[];
    v_nodes    bigint;
BEGIN
    FOR i IN 1 .. 2 LOOP
        SELECT array_agg(a.id ORDER BY t.n) INTO v_ids
        FROM unnest(p_accounts) WITH ORDINALITY AS t(account, n)
        CROSS JOIN LATERAL (SELECT y.id FROM weir.accounts y WHERE y.account = t.account LIMIT 1) a;
        EXIT WHEN cardinality(v_ids) = cardinality(p_accounts);
        -- By name, so that two nodes which make the same accounts wait for each other in one order.
        INSERT INTO weir.accounts (account, created_at)
            SELECT t.account, p_at FROM unnest(p_accounts) AS t(account)
            WHERE (SELECT a.id FROM weir.accounts a WHERE a.account = t.account) IS NULL ORDER BY t.account
            ON CONFLICT (account) DO NOTHING;
    END LOOP;
    PERFORM weir.ensure_periods(v_ids, array_fill(p_at, ARRAY[cardinality(v_ids)]));
    SELECT array_agg(p.id ORDER BY t.n), array_agg(coalesce(p.cut, p.ends) ORDER BY t.n) INTO v_periods, v_ends
        FROM unnest(v_ids) WITH ORDINALITY AS t(account, n)
        CROSS JOIN LATERAL (SELECT * FROM weir.periods y WHERE y.id = weir.period_at(t.account, p_at) LIMIT 1) p;
    PERFORM weir.ensure_periods(v_ids, v_ends);
    SELECT array_agg(k.key), array_agg(t.n), array_agg(t.want), array_agg(t.waiting) INTO v_keys, v_ns, v_wants, v_waitings
        FROM unnest(v_periods, p_features, p_ns, p_wants, p_waitings) AS t(period, feature, n, want, waiting)
        JOIN weir.features f ON f.name = t.feature
        CROSS JOIN LATERAL (SELECT * FROM weir.keys y WHERE y.period_id = t.period AND y.feature_id = f.id LIMIT 1) k
        WHERE k.in_plan AND k.enforce = 'leases'
          AND (SELECT l.key FROM weir.leases l WHERE l.key = k.key AND l.node = p_node) IS NULL;
    IF v_keys IS NOT NULL THEN
        PERFORM weir.node_gate(p_node, false);
        PERFORM FROM weir.quotas q WHERE q.key = ANY (v_keys) ORDER BY q.key FOR UPDATE;
        IF (SELECT n.state FROM weir.nodes n WHERE n.id = p_node) = 'live' THEN
            v_nodes := weir.live_nodes(p_node, p_judge);
            -- Where there is room, the first branch of weir.lease_one, for all of them in one statement.
            WITH asked AS MATERIALIZED (
                SELECT q.key, t.n, q.ceiling - q.granted AS room, greatest(t.want, least(q.ceiling / 100, 1000000)) AS want, t.waiting
                FROM unnest(v_keys, v_ns, v_wants, v_waitings) AS t(key, n, want, waiting)
                CROSS JOIN LATERAL (SELECT * FROM weir.quotas y WHERE y.key = t.key LIMIT 1) q
                WHERE NOT q.ended AND q.strict_until <= clock_timestamp() AND t.n > 0 AND q.ceiling - q.granted >= t.n
                  AND (SELECT l.key FROM weir.leases l WHERE l.key = q.key AND l.node = p_node) IS NULL),
            given AS MATERIALIZED (SELECT a.key, a.n, a.waiting, greatest(a.n, least(a.want, a.room / (2 * v_nodes))) AS got FROM asked a),
            moved AS (UPDATE weir.quotas q SET granted = q.granted + g.got FROM given g WHERE q.key = g.key),
            leased AS (
                INSERT INTO weir.leases (key, node, ver, lim, tight) SELECT g.key, p_node, 1, g.got, g.got = g.n AND g.waiting > 0 FROM given g)
            SELECT array_agg(g.key) INTO v_given FROM given g;
            FOR i IN 1 .. cardinality(v_keys) LOOP
                IF v_keys[i] = ANY (v_given) THEN
                    CONTINUE;
                END IF;
                PERFORM weir.lease_one(p_node, p_judge, v_nodes, false, v_keys[i], 0, 0, 0, v_ns[i], v_wants[i], v_waitings[i]);
            END LOOP;
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM weir.load(p_node, v_ids, p_at);
END $$;

-- A call that is decided in the database: plans with enforce: strict, and calls with an idempotency key.
CREATE TYPE weir.strict_answer AS (
    status     text,     -- ok, replayed, conflict, refused, wait, silent, ended, not_in_plan, unknown_feature
    account_id bigint,
    period_id  bigint,
    key        bigint,
    plan       text,
    starts     timestamptz,
    ends       timestamptz,
    included   bigint,
    ceiling    bigint,
    used       bigint,   -- stored by all nodes, this call included
    free       bigint,
    overage    bigint,
    adjusted   bigint,
    folded     bigint,
    bound      bigint,   -- refused: a call for more than this cannot pass until something changes
    own        bigint    -- of used, what the asking node has stored
);

-- The stored answer of a call with this idempotency key: replayed, or conflict when other units or another feature were
-- asked for then. NULL when there is none.
CREATE FUNCTION weir.replay(p_account bigint, p_idem text, p_feature integer, p_units bigint, p_at timestamptz) RETURNS weir.strict_answer
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    a weir.strict_answer;
    o weir.consumed_once;
BEGIN
    SELECT * INTO o FROM weir.consumed_once x WHERE x.account_id = p_account AND x.idem = p_idem AND x.at >= p_at - interval '24 hours';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    a := jsonb_populate_record(NULL::weir.strict_answer, o.answer);
    a.status := CASE WHEN o.feature_id = p_feature AND o.units = p_units THEN 'replayed' ELSE 'conflict' END;
    RETURN a;
END $$;

-- Spends a lease of node 0, the database itself: granted and lim grow by what is spent, and the inbox tells the fold.
-- A call that is not admitted leaves no key. wait: units are out at nodes and were called back; the caller waits
-- outside of the transaction, which would hold the row that a give needs, and calls again.
CREATE FUNCTION weir.consume_strict(p_account text, p_feature text, p_units bigint, p_idem text, p_judge boolean, p_at timestamptz,
        p_node bigint DEFAULT NULL) RETURNS weir.strict_answer
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    a         weir.strict_answer;
    r         weir.strict_answer;
    s         weir.shortage;
    q         weir.quotas;
    v_feature integer;
    v_in_plan boolean;
    v_upto    bigint;
BEGIN
    SELECT f.id INTO v_feature FROM weir.features f WHERE f.name = p_feature;
    IF NOT FOUND THEN
        a.status := 'unknown_feature';
        RETURN a;
    END IF;
    SELECT x.id INTO a.account_id FROM weir.accounts x WHERE x.account = p_account;
    IF NOT FOUND THEN
        INSERT INTO weir.accounts (account, created_at) VALUES (p_account, p_at) ON CONFLICT (account) DO NOTHING;
        SELECT x.id INTO a.account_id FROM weir.accounts x WHERE x.account = p_account;
    END IF;
    a.period_id := weir.ensure_period(a.account_id, p_at);
    SELECT p.plan, p.starts, coalesce(p.cut, p.ends) INTO a.plan, a.starts, a.ends FROM weir.periods p WHERE p.id = a.period_id;
    SELECT k.key, k.in_plan, k.included INTO a.key, v_in_plan, a.included FROM weir.keys k WHERE k.period_id = a.period_id AND k.feature_id = v_feature;
    -- The lock comes first: of two calls with one key the second then sees what the first stored.
    SELECT * INTO q FROM weir.quotas x WHERE x.key = a.key FOR UPDATE;
    r := weir.replay(a.account_id, p_idem, v_feature, p_units, p_at);
    IF r.status IS NOT NULL THEN
        RETURN r;
    END IF;
    IF a.key IS NULL OR NOT v_in_plan THEN
        a.status := 'not_in_plan';
        RETURN a;
    END IF;
    -- One statement: a fold that commits between two would be missed by one of them.
    SELECT t.used, t.free, t.overage, t.adjusted, weir.stored(t.key), greatest(0,
           (SELECT d.used FROM weir.done d WHERE d.key = t.key AND d.node = p_node),
           (SELECT max(i.upto) FROM weir.inbox i WHERE i.key = t.key AND i.node = p_node))
        INTO a.folded, a.free, a.overage, a.adjusted, a.used, a.own
        FROM weir.totals t WHERE t.key = a.key;
    a.ceiling := q.ceiling;
    IF q.ended OR q.key IS NULL THEN
        a.status := 'ended';
        RETURN a;
    END IF;
    IF p_units > q.ceiling - q.granted THEN
        s := weir.call_back(0, p_judge, a.key, q.ceiling - q.granted, p_units);
        a.status := CASE WHEN s.silent THEN 'silent' WHEN s.others THEN 'wait' ELSE 'refused' END;
        a.bound := s.bound;
        IF a.status = 'refused' THEN
            PERFORM weir.note_refusal(a.key, p_units);
        END IF;
        RETURN a;
    END IF;
    a.status := 'ok';
    a.used := a.used + p_units;
    IF p_idem IS NOT NULL THEN
        INSERT INTO weir.consumed_once AS o (account_id, idem, key, feature_id, units, answer, at)
            VALUES (a.account_id, p_idem, a.key, v_feature, p_units, to_jsonb(a), p_at)
            ON CONFLICT (account_id, idem) DO UPDATE SET key = excluded.key, feature_id = excluded.feature_id, units = excluded.units,
                answer = excluded.answer, at = excluded.at WHERE o.at < p_at - interval '24 hours';
        IF NOT FOUND THEN
            -- Stored meanwhile under another feature or period.
            RETURN weir.replay(a.account_id, p_idem, v_feature, p_units, p_at);
        END IF;
    END IF;
    UPDATE weir.quotas x SET granted = x.granted + p_units WHERE x.key = a.key;
    INSERT INTO weir.leases AS l (key, node, ver, lim, tight) VALUES (a.key, 0, 1, p_units, true)
        ON CONFLICT (key, node) DO UPDATE SET ver = l.ver + 1, lim = l.lim + p_units RETURNING l.lim INTO v_upto;
    INSERT INTO weir.inbox (node, key, upto, at) VALUES (0, a.key, v_upto, p_at);
    PERFORM pg_notify('weir_inbox', '');
    RETURN a;
END $$;

-- Sending: links are claimed by set, one per customer and meter, and their outcomes are stored by set.

-- What was taken of the running second's budget of calls, by endpoint. Stripe's limits are the account's, so all workers
-- over one database share one budget.
CREATE TABLE weir.calls (
    endpoint text PRIMARY KEY,
    second   bigint NOT NULL,  -- wall, since 1970
    taken    bigint NOT NULL
) WITH (fillfactor = 50);

-- Takes up to p_most calls of an endpoint's p_limit of this second; what is not used by its end is gone. Returns how
-- many were left to take, and how much of the second is left.
CREATE FUNCTION weir.take_calls(p_endpoint text, p_most bigint, p_limit bigint, OUT granted bigint, OUT rest interval)
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    c        weir.calls;
    v_wall   double precision;
    v_second bigint;
BEGIN
    SELECT * INTO c FROM weir.calls x WHERE x.endpoint = p_endpoint FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO weir.calls (endpoint, second, taken) VALUES (p_endpoint, 0, 0) ON CONFLICT DO NOTHING;
        SELECT * INTO c FROM weir.calls x WHERE x.endpoint = p_endpoint FOR UPDATE;
    END IF;
    -- The time after the wait for the row, not before it.
    v_wall := extract(epoch FROM clock_timestamp());
    v_second := floor(v_wall)::bigint;
    IF c.second <> v_second THEN
        c.taken := 0;
    END IF;
    granted := greatest(0, least(p_most, p_limit - c.taken));
    rest := make_interval(secs => v_second + 1 - v_wall);
    UPDATE weir.calls x SET second = v_second, taken = c.taken + granted WHERE x.endpoint = p_endpoint;
END $$;

CREATE TYPE weir.claimed_report AS (
    report      bigint,
    attempt     integer,
    claim       bigint,
    idempotency text,
    identifier  text,
    customer    text,
    meter       text,
    value       bigint,
    stamp       timestamptz
);

-- Where the last long look for turns ended. Its row's lock is held for one statement: such looks follow one another.
CREATE TABLE weir.turns (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    customer text NOT NULL DEFAULT '',
    meter    text NOT NULL DEFAULT ''
);
INSERT INTO weir.turns DEFAULT VALUES;

-- When the last attempt of a link began.
CREATE FUNCTION weir.last_try(r weir.reports) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT a.begun_at FROM weir.report_attempts a WHERE a.report = r.id AND a.attempt = r.attempts
$$;

-- The first link of a customer and meter that may be sent. An ambiguous link is sent again, unchanged, for 23 h; then a
-- summary decides. A clock that is set back meanwhile makes no more hours of them.
CREATE FUNCTION weir.turn_of(p_customer text, p_meter text, p_now timestamptz, p_wall timestamptz) RETURNS TABLE (id bigint)
    LANGUAGE sql STABLE AS $$
    SELECT y.id FROM weir.reports y
    WHERE y.customer = p_customer AND y.meter = p_meter AND y.state IN ('stored', 'unknown') AND NOT y.replaced AND NOT y.over
      AND y.retry_at <= p_wall AND (NOT y.ambiguous OR greatest(p_now, weir.last_try(y)) < y.first_sent + interval '23 hours')
      AND y.stamp > p_now - interval '35 days' + interval '10 minutes'
      AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = y.key AND b.final)
    ORDER BY y.id LIMIT 1
$$;

-- Up to p_most turns of customers and meters with nothing in flight, in the order of their names after one. It goes from
-- one to the next, past all links of each in one step. p_only narrows to one customer, NULL is all.
CREATE FUNCTION weir.next_turns(p_customer text, p_meter text, p_only text, p_most integer, p_now timestamptz, p_wall timestamptz)
    RETURNS TABLE (id bigint, customer text, meter text)
    LANGUAGE sql STABLE AS $$
    WITH RECURSIVE streams AS (
        (SELECT y.customer, y.meter FROM weir.reports y
         WHERE y.state IN ('stored', 'unknown') AND NOT y.replaced AND NOT y.over AND (y.customer, y.meter) > (p_customer, p_meter)
         ORDER BY y.customer, y.meter, y.id LIMIT 1)
        UNION ALL
        SELECT n.customer, n.meter FROM streams s CROSS JOIN LATERAL (
            SELECT y.customer, y.meter FROM weir.reports y
            WHERE y.state IN ('stored', 'unknown') AND NOT y.replaced AND NOT y.over AND (y.customer, y.meter) > (s.customer, s.meter)
            ORDER BY y.customer, y.meter, y.id LIMIT 1) n
        WHERE p_only IS NULL OR s.customer = p_only)
    SELECT t.id, f.customer, f.meter
    FROM (SELECT s.customer, s.meter FROM streams s
          WHERE (p_only IS NULL OR s.customer = p_only)
            AND coalesce((SELECT x.claimed_until FROM weir.streams x WHERE x.customer = s.customer AND x.meter = s.meter), '-infinity') <= p_wall OFFSET 0) f
    CROSS JOIN LATERAL weir.turn_of(f.customer, f.meter, p_now, p_wall) t LIMIT p_most
$$;

-- Claims up to p_most links for p_hold, at most one per customer and meter in the whole installation, and records that
-- an attempt begins: from here on its outcome is unknown until it is stored. Nothing while sending is stopped. Of each
-- customer and meter only the first link that may be sent is looked at, so that one with many due links takes one place
-- of p_most, like any other. Whose link has been due for longest comes first. Where what has been due for longest is
-- mostly behind other links of its customer, the turns go round by name from where they ended last, so that a claim
-- costs what it claims and not what is due. p_customer narrows to one, NULL is all; p_probe claims in spite of a stop,
-- to see whether it is over.
CREATE FUNCTION weir.claim_reports(p_now timestamptz, p_most integer, p_hold interval, p_customer text, p_probe boolean) RETURNS SETOF weir.claimed_report
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    v_wall timestamptz := clock_timestamp();
    v_look integer := greatest(100, 2 * p_most);  -- links that are looked at in the order in which they became due
    v_ids  bigint[];
    v_from weir.turns;
    v_to   weir.turns;
    v_more record;
BEGIN
    IF NOT p_probe AND EXISTS (SELECT FROM weir.stops) THEN
        RETURN;
    END IF;
    IF p_customer IS NOT NULL THEN
        v_ids := ARRAY(SELECT t.id FROM weir.next_turns(p_customer, '', p_customer, p_most, p_now, v_wall) t);
    ELSE
        v_ids := ARRAY(
            SELECT f.id FROM (
                SELECT d.id, d.customer, d.meter FROM (
                    SELECT r.id, r.customer, r.meter FROM weir.reports r
                    WHERE r.state IN ('stored', 'unknown') AND NOT r.replaced AND NOT r.over AND r.retry_at <= v_wall
                    ORDER BY r.retry_at, r.id LIMIT v_look) d
                WHERE coalesce((SELECT s.claimed_until FROM weir.streams s WHERE s.customer = d.customer AND s.meter = d.meter), '-infinity') <= v_wall OFFSET 0) f
            CROSS JOIN LATERAL weir.turn_of(f.customer, f.meter, p_now, v_wall) t
            WHERE t.id = f.id LIMIT p_most);
        IF cardinality(v_ids) < p_most AND v_look = (SELECT count(*) FROM (
                SELECT FROM weir.reports r WHERE r.state IN ('stored', 'unknown') AND NOT r.replaced AND NOT r.over AND r.retry_at <= v_wall
                ORDER BY r.retry_at, r.id LIMIT v_look) d) THEN
            SELECT * INTO v_from FROM weir.turns x WHERE x.one FOR UPDATE;
            v_to := v_from;
            v_ids := '{}';
            FOR v_round IN 1..2 LOOP
                SELECT array_agg(t.id) AS ids, (array_agg(t.customer))[count(*)] AS customer, (array_agg(t.meter))[count(*)] AS meter INTO v_more
                FROM weir.next_turns(CASE v_round WHEN 1 THEN v_from.customer ELSE '' END, CASE v_round WHEN 1 THEN v_from.meter ELSE '' END,
                    NULL, p_most - cardinality(v_ids), p_now, v_wall) t;
                IF v_more.ids IS NOT NULL THEN
                    v_ids := v_ids || v_more.ids;
                    v_to.customer := v_more.customer;
                    v_to.meter := v_more.meter;
                END IF;
                EXIT WHEN cardinality(v_ids) >= p_most;
            END LOOP;
            UPDATE weir.turns x SET customer = v_to.customer, meter = v_to.meter WHERE x.one;
        END IF;
    END IF;
    IF v_ids = '{}' THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH one AS MATERIALIZED (
        SELECT r.id, r.customer, r.meter
        FROM weir.reports r
        WHERE r.id = ANY (v_ids) AND r.state IN ('stored', 'unknown') AND NOT r.replaced AND NOT r.over AND r.retry_at <= v_wall
        ORDER BY r.id FOR UPDATE OF r SKIP LOCKED),
    held AS (
        INSERT INTO weir.streams AS s (customer, meter, claimed_until, claim)
        SELECT o.customer, o.meter, v_wall + p_hold, 1 FROM one o ORDER BY o.customer, o.meter
        ON CONFLICT (customer, meter) DO UPDATE SET claimed_until = excluded.claimed_until, claim = s.claim + 1
            WHERE s.claimed_until <= v_wall
        RETURNING s.customer, s.meter, s.claim),
    begun AS (
        UPDATE weir.reports r SET state = 'unknown', ambiguous = true, attempts = r.attempts + 1,
            first_sent = coalesce(r.first_sent - greatest(interval '0 s', weir.last_try(r) - p_now), p_now),  -- what has elapsed, where the clock was set back
            retry_at = v_wall + p_hold, zero_reads = 0, read_at = NULL  -- what was read before says nothing of this attempt
        FROM one o JOIN held h ON h.customer = o.customer AND h.meter = o.meter
        WHERE r.id = o.id
        RETURNING r.id, r.attempts, h.claim, r.identifier, r.customer, r.meter, r.value, r.stamp),
    noted AS (
        INSERT INTO weir.report_attempts (report, attempt, idempotency, begun_at)
        SELECT b.id, b.attempts, b.identifier || ':' || b.attempts, p_now FROM begun b
        RETURNING report)
    SELECT b.id, b.attempts, b.claim, b.identifier || ':' || b.attempts, b.identifier, b.customer, b.meter, b.value, b.stamp
    FROM begun b ORDER BY b.id;
END $$;

-- Stores outcomes: delivered; rejected (Stripe refused this row); later (nothing was executed); unknown. A refusal after
-- an attempt whose outcome nobody knows proves nothing: such a link waits for its summary.
CREATE FUNCTION weir.settle_reports(p_reports bigint[], p_attempts integer[], p_claims bigint[], p_outcomes text[], p_statuses integer[],
        p_requests text[], p_messages text[], p_waits interval[], p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM weir.reports r WHERE r.id = ANY (p_reports) ORDER BY r.id FOR UPDATE;
    UPDATE weir.report_attempts a SET ended_at = p_now, outcome = x.outcome, status = nullif(x.status, 0), request = x.request, message = x.message
    FROM unnest(p_reports, p_attempts, p_outcomes, p_statuses, p_requests, p_messages) AS x(report, attempt, outcome, status, request, message)
    WHERE a.report = x.report AND a.attempt = x.attempt AND a.outcome IS NULL;

    UPDATE weir.reports r SET
        state = CASE WHEN r.state <> 'unknown' THEN r.state
                     WHEN x.outcome = 'delivered' THEN 'delivered'
                     WHEN x.outcome = 'rejected' AND NOT u.unsure THEN 'rejected'
                     WHEN x.outcome = 'later' AND NOT u.unsure THEN 'stored'
                     ELSE 'unknown' END,
        ambiguous = r.state = 'unknown' AND x.outcome <> 'delivered' AND u.unsure,
        settled_at = CASE WHEN x.outcome IN ('delivered', 'rejected') THEN p_now ELSE r.settled_at END,
        message = CASE WHEN x.outcome = 'delivered' THEN NULL ELSE x.message END,
        code = CASE WHEN x.outcome = 'rejected' THEN coalesce(x.status::text, '') ELSE r.code END,
        retry_at = CASE WHEN x.outcome = 'rejected' THEN 'infinity' ELSE clock_timestamp() + x.wait END
    FROM unnest(p_reports, p_outcomes, p_statuses, p_messages, p_waits) AS x(report, outcome, status, message, wait)
    CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT FROM weir.report_attempts a WHERE a.report = x.report AND (a.outcome IS NULL OR a.outcome = 'unknown')) AS unsure) u
    WHERE r.id = x.report;

    WITH free AS (
        UPDATE weir.streams s SET claimed_until = '-infinity'
        FROM weir.reports r, unnest(p_reports, p_claims) AS x(report, claim)
        WHERE r.id = x.report AND s.customer = r.customer AND s.meter = r.meter AND s.claim = x.claim
        RETURNING s.customer, s.meter)
    -- Whoever has had a turn waits behind those who have not: links are claimed by when they became due.
    UPDATE weir.reports n SET retry_at = clock_timestamp()
    FROM free f CROSS JOIN LATERAL (
        SELECT y.id FROM weir.reports y
        WHERE y.customer = f.customer AND y.meter = f.meter AND y.state IN ('stored', 'unknown') AND NOT y.replaced AND NOT y.over
          AND y.state = 'stored' AND y.retry_at = '-infinity' ORDER BY y.id LIMIT 1 FOR UPDATE SKIP LOCKED) y
    WHERE n.id = y.id;
END $$;

-- Links that are too old for Stripe are never stamped anew: a person bills them.
CREATE FUNCTION weir.expire_reports(p_now timestamptz) RETURNS bigint[]
    LANGUAGE sql VOLATILE AS $$
    WITH old AS (
        UPDATE weir.reports r SET state = 'rejected', code = 'too_old', settled_at = p_now,
            message = 'older than the 35 days that Stripe accepts'
        WHERE r.state = 'stored' AND NOT r.replaced AND NOT r.over AND r.stamp <= p_now - interval '35 days' + interval '10 minutes'
        RETURNING r.id)
    SELECT coalesce(array_agg(o.id), '{}') FROM old o
$$;

-- Raises what a person has to look at; an open one is counted on.
CREATE FUNCTION weir.find(p_kind text, p_subject text, p_account bigint, p_message text, p_now timestamptz) RETURNS void
    LANGUAGE sql VOLATILE AS $$
    INSERT INTO weir.findings AS f (kind, subject, account_id, message, since, seen_at) VALUES (p_kind, p_subject, p_account, p_message, p_now, p_now)
    ON CONFLICT (kind, subject) WHERE cleared_at IS NULL
    DO UPDATE SET seen_at = p_now, times = f.times + 1, message = excluded.message, account_id = coalesce(excluded.account_id, f.account_id)
$$;

CREATE FUNCTION weir.unfind(p_kind text, p_subject text, p_by text, p_now timestamptz) RETURNS void
    LANGUAGE sql VOLATILE AS $$
    UPDATE weir.findings SET cleared_at = p_now, cleared_by = p_by WHERE kind = p_kind AND subject = p_subject AND cleared_at IS NULL
$$;

-- Plan changes, overrides, publications, corrections: every one folds first, re-prices nothing, and takes a change number.

-- The plan that plan sync derived for an account, with the subscription's own period. A NULL p_starts means that no
-- subscription is left: the account falls to the default plan now. Returns the period that holds the account's terms.
CREATE FUNCTION weir.apply_plan(p_account bigint, p_plan text, p_quantity bigint, p_anchor timestamptz, p_months integer,
        p_starts timestamptz, p_ends timestamptz, p_until timestamptz, p_window_start timestamptz, p_window_end timestamptz,
        p_yes integer[], p_awaiting integer[], p_now timestamptz) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_cur     weir.periods;
    v_id      bigint;
    v_unbegun bigint[];
    v_wrong   bigint;
    v_keys    bigint[];
BEGIN
    PERFORM weir.fold_account(p_account);
    PERFORM FROM weir.accounts a WHERE a.id = p_account FOR NO KEY UPDATE;
    PERFORM weir.catalog_gate(false);
    PERFORM weir.note_plan(p_account, p_plan, p_quantity, p_anchor, p_months, p_until, p_now);
    UPDATE weir.accounts a SET plan = p_plan, quantity = p_quantity, anchor = p_anchor, months = coalesce(p_months, 1), plan_until = p_until
        WHERE a.id = p_account;
    SELECT * INTO v_cur FROM weir.periods p WHERE p.id = weir.period_at(p_account, p_now);
    IF p_starts IS NULL THEN
        IF v_cur.source = 'subscription' THEN
            -- p_until is when Stripe ended the subscription, where that was in this period.
            PERFORM weir.end_period(v_cur.id, CASE WHEN p_until > v_cur.starts AND p_until < p_now THEN p_until ELSE p_now END, p_now);
        END IF;
        v_unbegun := weir.drop_unbegun(p_account, p_now);
        v_id := weir.ensure_period(p_account, p_now);
    ELSE
        p_ends := least(p_ends, CASE WHEN p_until > p_starts THEN p_until END);
        SELECT p.id INTO v_id FROM weir.periods p WHERE p.account_id = p_account AND p.starts = p_starts AND p.state <> 'void';
        v_unbegun := weir.drop_unbegun(p_account, greatest(p_now, p_starts));
        IF v_cur.id <> v_id OR v_id IS NULL THEN
            IF v_cur.starts < p_starts THEN
                PERFORM weir.end_period(v_cur.id, least(p_starts, v_cur.ends), p_now);
            ELSIF v_cur.source = 'subscription' AND NOT v_cur.confirmed THEN
                v_wrong := v_cur.id;  -- predicted: the true period takes its units
            ELSIF v_cur.starts < p_ends THEN
                PERFORM weir.end_period(v_cur.id, p_now, p_now);  -- the true period covers it
            END IF;
        END IF;
        v_id := weir.confirm_period(p_account, v_id, p_plan, p_starts, p_ends, p_window_start, p_window_end, p_yes, p_awaiting, p_now);
    END IF;
    IF v_wrong IS NOT NULL THEN
        PERFORM weir.void_period(v_wrong, v_id, p_now);
    END IF;
    PERFORM weir.replace_unbegun(p_account, v_unbegun, p_now);
    SELECT array_agg(k.key) INTO v_keys FROM weir.keys k WHERE k.period_id = v_id;
    PERFORM weir.reset_ceilings(coalesce(v_keys, '{}'));
    PERFORM weir.ensure_period(p_account, (SELECT coalesce(p.cut, p.ends) FROM weir.periods p WHERE p.id = v_id));
    UPDATE weir.periods p SET change = weir.touch(p_account) WHERE p.id = v_id;
    -- Two statements: each has an index.
    UPDATE weir.periods p SET change = c.number FROM weir.changes c WHERE p.account_id = p_account AND p.state = 'open' AND p.id <> v_id;
    UPDATE weir.periods p SET change = c.number FROM weir.changes c WHERE p.account_id = p_account AND p.state = 'void' AND p.id <> v_id;
    RETURN v_id;
END $$;

-- Makes or confirms the period that a GET showed, and gives it the account's terms.
CREATE FUNCTION weir.confirm_period(p_account bigint, p_period bigint, p_plan text, p_starts timestamptz, p_ends timestamptz,
        p_window_start timestamptz, p_window_end timestamptz, p_yes integer[], p_awaiting integer[], p_now timestamptz) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_id       bigint := p_period;
    v_cat      bigint := (SELECT max(c.number) FROM weir.catalogs c);
    v_before   bigint[];
    v_included bigint[];
BEGIN
    IF v_cat IS NULL THEN
        RAISE EXCEPTION 'no plan file is published yet' USING ERRCODE = 'WR001', HINT = 'start the worker, or run: worker plans apply';
    END IF;
    IF v_id IS NULL THEN
        INSERT INTO weir.periods (account_id, starts, ends, planned, plan, catalog, source, confirmed, window_start, window_end, carried_from, created_at)
        VALUES (p_account, p_starts, p_ends, p_ends, p_plan, v_cat, 'subscription', true, p_window_start, p_window_end,
                weir.carried_from(p_account, p_starts, true), p_now)
        RETURNING id INTO v_id;
        IF p_ends <= p_now THEN
            PERFORM weir.end_period(v_id, p_ends, p_now);
        END IF;
    ELSE
        UPDATE weir.periods p SET source = 'subscription', confirmed = true, plan = p_plan, window_start = p_window_start, window_end = p_window_end,
            catalog = CASE WHEN p.plan = p_plan THEN p.catalog ELSE v_cat END,
            -- An end that was only predicted is not one that is cut short.
            planned = CASE WHEN p.confirmed THEN p.planned ELSE p_ends END
        WHERE p.id = v_id;
        IF NOT EXISTS (SELECT FROM weir.periods p WHERE p.id = v_id AND p.ends = p_ends) THEN
            PERFORM weir.end_period(v_id, p_ends, p_now);
        END IF;
    END IF;
    SELECT array_agg(k.key), array_agg(k.included) INTO v_before, v_included FROM weir.keys k WHERE k.period_id = v_id;
    PERFORM weir.copy_terms(v_id, p_yes, p_awaiting);
    PERFORM weir.forgive_upgrade(v_before, v_included, p_now);
    -- What awaited this confirmation is billable now.
    UPDATE weir.totals t SET not_billable = t.not_billable - t.awaiting, awaiting = 0
        FROM weir.keys k WHERE k.key = t.key AND k.period_id = v_id AND k.billability = 'yes' AND t.awaiting > 0;
    RETURN v_id;
END $$;

-- Moves a period's end. An end in the past cannot cut counters backwards: the row keeps both. An end that lies ahead
-- opens a row again whose close had begun.
CREATE FUNCTION weir.end_period(p_period bigint, p_ends timestamptz, p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    UPDATE weir.periods p SET
        ends = CASE WHEN p_ends > p.starts THEN p_ends ELSE greatest(p_now, p.starts + interval '1 microsecond') END,
        planned = greatest(p.planned, p_ends),
        cut = CASE WHEN p_ends <= p_now THEN greatest(least(coalesce(p.cut, p.ends), p_now), p.starts + interval '1 microsecond') END,
        state = CASE WHEN p_ends > p_now AND p.state IN ('closing', 'closed') THEN 'open' ELSE p.state END
    WHERE p.id = p_period;
    IF p_ends > p_now THEN
        PERFORM FROM weir.quotas q WHERE q.ended AND q.key IN (SELECT k.key FROM weir.keys k WHERE k.period_id = p_period) ORDER BY q.key FOR UPDATE;
        UPDATE weir.quotas q SET ended = false FROM weir.keys k WHERE k.key = q.key AND k.period_id = p_period AND q.ended;
    END IF;
END $$;

-- Deletes the periods of an account that have not begun, with their keys. Those under which something was counted or
-- leased all the same (a node's clock was ahead; what it has not sent yet must find its key) are kept and returned. The
-- caller holds weir.fold and has folded.
CREATE FUNCTION weir.drop_unbegun(p_account bigint, p_now timestamptz) RETURNS bigint[]
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_all  bigint[];
    v_kept bigint[];
BEGIN
    SELECT coalesce(array_agg(p.id), '{}') INTO v_all FROM weir.periods p
        WHERE p.account_id = p_account AND p.starts > p_now AND p.state = 'open';
    -- First the quota locks: an ask that is under way takes them before it looks at the key. Those of the periods that run
    -- too: the caller needs them later, and an ask for both has them in this order.
    PERFORM FROM weir.quotas q WHERE q.key IN (SELECT k.key FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id
        WHERE p.account_id = p_account AND p.state IN ('open', 'closing')) ORDER BY q.key FOR UPDATE;
    SELECT coalesce(array_agg(DISTINCT k.period_id), '{}') INTO v_kept FROM weir.keys k JOIN weir.totals t ON t.key = k.key
        WHERE k.period_id = ANY (v_all) AND (t.used <> 0 OR EXISTS (SELECT FROM weir.leases l WHERE l.key = k.key)
              OR EXISTS (SELECT FROM weir.adjustments a WHERE a.key = k.key)
              OR EXISTS (SELECT FROM weir.inbox i WHERE i.key = k.key));
    DELETE FROM weir.periods p WHERE p.id = ANY (v_all) AND NOT p.id = ANY (v_kept);
    RETURN v_kept;
END $$;

-- Makes a period void: nothing more is granted under it, and the true one takes what is counted there, and what will
-- be (weir.move_units, weir.drain_voids). The caller holds weir.fold and has folded.
CREATE FUNCTION weir.void_period(p_period bigint, p_true bigint, p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    UPDATE weir.periods p SET state = 'void', cut = greatest(p_now, p.starts + interval '1 microsecond') WHERE p.id = p_period;
    UPDATE weir.periods p SET replaced_by = p_true WHERE p.replaced_by = p_period;
    UPDATE weir.totals t SET void = true FROM weir.keys k WHERE k.key = t.key AND k.period_id = p_period;
    PERFORM weir.move_units(p_period, p_true, p_now);
END $$;

-- Makes periods void that weir.drop_unbegun has kept: each is replaced by the one that begins then, or goes on.
CREATE FUNCTION weir.replace_unbegun(p_account bigint, p_periods bigint[], p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE r record;
BEGIN
    UPDATE weir.periods p SET state = 'void' WHERE p.id = ANY (p_periods);
    FOR r IN SELECT p.id, p.starts FROM weir.periods p WHERE p.id = ANY (p_periods) ORDER BY p.starts LOOP
        PERFORM weir.void_period(r.id, weir.ensure_period(p_account, r.starts), p_now);
    END LOOP;
END $$;

-- What a period allowed before it began was never in force.
CREATE FUNCTION weir.forget_maximum(p_periods bigint[], p_now timestamptz) RETURNS void
    LANGUAGE sql SET enable_seqscan = off AS $$
    UPDATE weir.keys k SET highest_maximum = CASE WHEN k.on_exceeded = 'bill_overage' THEN least(k.maximum, k.spending_cap) ELSE 0 END
    FROM weir.periods p WHERE p.id = ANY (p_periods) AND p.starts > p_now AND k.period_id = p.id
$$;

-- Copies terms into an account's open period and the next one: after an override (p_catalog NULL), or by a catalog
-- that is applied now.
CREATE FUNCTION weir.apply_terms(p_account bigint, p_catalog bigint, p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_periods bigint[];
    v_period  bigint;
    v_keys    bigint[];
BEGIN
    PERFORM weir.fold_account(p_account);
    PERFORM FROM weir.accounts a WHERE a.id = p_account FOR NO KEY UPDATE;
    PERFORM weir.catalog_gate(false);
    SELECT coalesce(array_agg(p.id ORDER BY p.id), '{}') INTO v_periods FROM weir.periods p
        WHERE p.account_id = p_account AND p.state = 'open' AND coalesce(p.cut, p.ends) > p_now;
    PERFORM weir.note_terms(p_account, v_periods, p_catalog, p_now);
    UPDATE weir.periods p SET catalog = p_catalog WHERE p.id = ANY (v_periods)
        AND EXISTS (SELECT FROM weir.plan_terms t WHERE t.catalog = p_catalog AND t.plan = p.plan);
    FOREACH v_period IN ARRAY v_periods LOOP
        PERFORM weir.copy_terms(v_period, NULL, NULL);
    END LOOP;
    PERFORM weir.forget_maximum(v_periods, p_now);
    SELECT array_agg(k.key) INTO v_keys FROM weir.keys k WHERE k.period_id = ANY (v_periods);
    PERFORM weir.reset_ceilings(coalesce(v_keys, '{}'));
    PERFORM weir.touch(p_account);
END $$;

-- A signed correction of a key's usage. A refund takes from overage first, then from free; an addition counts like
-- any unit. Moves free and overage only, never what nodes counted. The caller holds weir.fold and has folded.
CREATE FUNCTION weir.adjust_one(p_key bigint, p_units bigint, p_reason text, p_actor text, p_now timestamptz) RETURNS weir.adjustments
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    k      weir.keys;
    t      weir.totals;
    a      weir.adjustments;
    v_free bigint;
    v_over bigint;
    v_part bigint;
    v_wait bigint;
BEGIN
    SELECT * INTO STRICT k FROM weir.keys x WHERE x.key = p_key;
    SELECT * INTO STRICT t FROM weir.totals x WHERE x.key = p_key;
    IF p_units < 0 THEN
        v_over := greatest(p_units, -t.overage);
        v_free := p_units - v_over;
        IF v_free < t.carried - t.free THEN
            RAISE EXCEPTION 'cannot refund % units: only % are counted', -p_units::numeric, t.free - t.carried + t.overage USING ERRCODE = 'WR002';
        END IF;
        -- What is not billable goes first: it is on no invoice. Of that, what awaits nothing.
        v_part := -least(t.not_billable, -v_over);
        v_wait := least(t.awaiting, t.not_billable + v_part) - t.awaiting;
    ELSE
        v_free := CASE WHEN k.included IS NULL THEN p_units ELSE least(p_units, greatest(0, k.included - t.free)) END;
        v_over := p_units - v_free;
        v_part := CASE WHEN k.billability = 'yes' THEN 0 ELSE v_over END;
        v_wait := CASE WHEN k.billability = 'awaiting' THEN v_over ELSE 0 END;
    END IF;
    UPDATE weir.totals x SET free = x.free + v_free, overage = x.overage + v_over, adjusted = x.adjusted + p_units,
        not_billable = x.not_billable + v_part, awaiting = x.awaiting + v_wait
    WHERE x.key = p_key;
    INSERT INTO weir.adjustments (key, units, free, overage, reason, actor, at)
        VALUES (p_key, p_units, v_free, v_over, p_reason, p_actor, p_now) RETURNING * INTO a;
    RETURN a;
END $$;

CREATE FUNCTION weir.adjust(p_key bigint, p_units bigint, p_reason text, p_actor text, p_now timestamptz) RETURNS weir.adjustments
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_account bigint;
    a         weir.adjustments;
BEGIN
    SELECT x.account_id INTO STRICT v_account FROM weir.keys x WHERE x.key = p_key;
    PERFORM weir.fold_account(v_account);
    a := weir.adjust_one(p_key, p_units, p_reason, p_actor, p_now);
    PERFORM weir.reset_ceilings(ARRAY[p_key]);
    PERFORM weir.touch(v_account);
    RETURN a;
END $$;

-- Gives periods that have not begun the terms of a newer catalog, at most p_most of them a call, from a row onwards.
-- Returns the last row's start and id, or NULLs when none is left.
CREATE FUNCTION weir.renew_chunk(p_catalog bigint, p_now timestamptz, INOUT p_after timestamptz, INOUT p_after_id bigint, p_most integer,
        OUT renewed bigint)
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    r      record;
    v_ids  bigint[] := '{}';
    v_keys bigint[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    FOR r IN
        SELECT p.id, p.starts FROM weir.periods p
        WHERE p.state = 'open' AND p.starts > p_now AND (p.starts, p.id) > (p_after, p_after_id) AND p.catalog < p_catalog
        ORDER BY p.starts, p.id LIMIT p_most FOR NO KEY UPDATE
    LOOP
        UPDATE weir.periods p SET catalog = p_catalog,
            plan = CASE WHEN p.source = 'calendar' OR NOT EXISTS (SELECT FROM weir.plan_terms t WHERE t.catalog = p_catalog AND t.plan = p.plan)
                        THEN (SELECT c.default_plan FROM weir.catalogs c WHERE c.number = p_catalog) ELSE p.plan END
        WHERE p.id = r.id;
        PERFORM weir.copy_terms(r.id, NULL, NULL);
        v_ids := v_ids || r.id;
        p_after := r.starts; p_after_id := r.id;
    END LOOP;
    renewed := cardinality(v_ids);
    IF renewed = 0 THEN
        RETURN;
    END IF;
    PERFORM weir.forget_maximum(v_ids, p_now);
    SELECT array_agg(k.key) INTO v_keys FROM weir.keys k WHERE k.period_id = ANY (v_ids);
    PERFORM weir.reset_ceilings(coalesce(v_keys, '{}'));
END $$;

-- Forgets what has served its time, at most p_most rows of each kind a call. Returns how many rows went.
CREATE FUNCTION weir.prune(p_now timestamptz, p_most integer) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_all bigint := 0;
    v_one bigint;
BEGIN
    -- Answers of calls with an idempotency key: 24 h.
    DELETE FROM weir.consumed_once WHERE (account_id, idem) IN (
        SELECT o.account_id, o.idem FROM weir.consumed_once o WHERE o.at < p_now - interval '24 hours' ORDER BY o.at LIMIT p_most FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_one = ROW_COUNT; v_all := v_all + v_one;
    -- A recall is repeated while it matters.
    DELETE FROM weir.recalls WHERE key IN (
        SELECT r.key FROM weir.recalls r WHERE r.at < clock_timestamp() - interval '1 minute' ORDER BY r.at LIMIT p_most FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_one = ROW_COUNT; v_all := v_all + v_one;
    -- Who is further behind than 100,000 changes reads everything again.
    DELETE FROM weir.change_log l USING (
        SELECT x.number FROM weir.change_log x WHERE x.number <= (SELECT c.number - 100000 FROM weir.changes c) ORDER BY x.number LIMIT p_most) o
        WHERE l.number = o.number;
    GET DIAGNOSTICS v_one = ROW_COUNT; v_all := v_all + v_one;
    -- Parked rows: 90 days for a person to look at them.
    DELETE FROM weir.inbox_parked WHERE id IN (
        SELECT i.id FROM weir.inbox_parked i WHERE i.parked_at < clock_timestamp() - interval '90 days' ORDER BY i.parked_at LIMIT p_most FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_one = ROW_COUNT; v_all := v_all + v_one;
    -- What went over a ceiling, and why: as long as the ledgers that it explains.
    DELETE FROM weir.overshoots WHERE id IN (
        SELECT o.id FROM weir.overshoots o WHERE o.at < clock_timestamp() - interval '7 years' ORDER BY o.at LIMIT p_most FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_one = ROW_COUNT; v_all := v_all + v_one;
    -- Nodes that are over, when nothing of them is left: 90 days.
    DELETE FROM weir.nodes n WHERE n.id IN (
        SELECT x.id FROM weir.nodes x WHERE x.state IN ('retired', 'given_up') AND x.ended_at < p_now - interval '90 days'
          AND NOT EXISTS (SELECT FROM weir.leases l WHERE l.node + 0 = x.id) AND NOT EXISTS (SELECT FROM weir.done d WHERE d.node + 0 = x.id)
        ORDER BY x.ended_at LIMIT p_most FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_one = ROW_COUNT; v_all := v_all + v_one;
    RETURN v_all;
END $$;

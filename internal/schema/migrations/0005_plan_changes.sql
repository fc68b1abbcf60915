-- Plan changes, overrides and publications: every one folds first, re-prices nothing, and takes a change number.

-- The plan that plan sync derived for an account, with the subscription's own period. A NULL p_starts means that no
-- subscription is left: the account falls to the default plan now. Returns the period that is open afterwards.
CREATE FUNCTION weir.apply_plan(p_account bigint, p_plan text, p_quantity bigint, p_anchor timestamptz, p_months integer,
        p_starts timestamptz, p_ends timestamptz, p_until timestamptz, p_window_start timestamptz, p_window_end timestamptz,
        p_yes integer[], p_awaiting integer[], p_now timestamptz) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_cur weir.periods;
    v_id  bigint;
    v_cat weir.catalogs;
    v_keys bigint[];
BEGIN
    PERFORM weir.fold_account(p_account);
    PERFORM FROM weir.accounts a WHERE a.id = p_account FOR UPDATE;
    SELECT * INTO v_cat FROM weir.catalogs c ORDER BY c.number DESC LIMIT 1;
    UPDATE weir.accounts a SET plan = p_plan, quantity = p_quantity, anchor = p_anchor, months = coalesce(p_months, 1), plan_until = p_until
        WHERE a.id = p_account;
    SELECT * INTO v_cur FROM weir.periods p WHERE p.id = weir.period_at(p_account, p_now);

    IF p_starts IS NULL THEN
        IF v_cur.id IS NOT NULL AND v_cur.source = 'subscription' THEN
            PERFORM weir.end_period(v_cur.id, p_now, p_now);
        END IF;
        PERFORM weir.drop_unbegun(p_account, p_now);
        v_id := weir.ensure_period(p_account, p_now);
    ELSE
        SELECT p.id INTO v_id FROM weir.periods p
            WHERE p.account_id = p_account AND p.starts = p_starts AND p.state <> 'void' AND p.source = 'subscription';
        IF v_cur.id IS NOT NULL AND v_cur.id IS DISTINCT FROM v_id THEN
            PERFORM weir.end_period(v_cur.id, p_starts, p_now);
        END IF;
        PERFORM weir.drop_unbegun(p_account, greatest(p_now, p_starts));
        IF v_id IS NULL THEN
            DELETE FROM weir.periods p WHERE p.account_id = p_account AND p.starts = p_starts AND p.state <> 'void'
                AND NOT EXISTS (SELECT FROM weir.keys k JOIN weir.totals t USING (key) WHERE k.period_id = p.id AND t.used <> 0);
            INSERT INTO weir.periods (account_id, starts, ends, plan, catalog, source, confirmed, window_start, window_end, carried_from, created_at)
            VALUES (p_account, p_starts, p_ends, p_plan, v_cat.number, 'subscription', true, p_window_start, p_window_end,
                    weir.carried_from(p_account, p_starts, true), p_now)
            RETURNING id INTO v_id;
        ELSE
            UPDATE weir.periods p SET plan = p_plan, confirmed = true, catalog = CASE WHEN p.plan = p_plan THEN p.catalog ELSE v_cat.number END,
                window_start = p_window_start, window_end = p_window_end
            WHERE p.id = v_id;
            IF NOT EXISTS (SELECT FROM weir.periods p WHERE p.id = v_id AND p.ends = p_ends) THEN
                PERFORM weir.end_period(v_id, p_ends, p_now);
            END IF;
        END IF;
        PERFORM weir.copy_terms(v_id, p_yes, p_awaiting);
        -- What awaited this confirmation is billable now.
        UPDATE weir.totals t SET not_billable = t.not_billable - t.awaiting, awaiting = 0
            FROM weir.keys k WHERE k.key = t.key AND k.period_id = v_id AND k.billability = 'yes' AND t.awaiting > 0;
    END IF;
    SELECT array_agg(k.key) INTO v_keys FROM weir.keys k WHERE k.period_id = v_id;
    PERFORM weir.reset_ceilings(coalesce(v_keys, '{}'));
    PERFORM weir.ensure_period(p_account, (SELECT coalesce(p.cut, p.ends) FROM weir.periods p WHERE p.id = v_id));
    UPDATE weir.periods p SET change = c.number + 1 FROM weir.changes c WHERE p.account_id = p_account AND p.state = 'open';
    PERFORM weir.touch(p_account);
    RETURN v_id;
END $$;

-- Moves a period's end. An end in the past cannot cut counters backwards: the row keeps both.
CREATE FUNCTION weir.end_period(p_period bigint, p_ends timestamptz, p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    UPDATE weir.periods p SET
        ends = CASE WHEN p_ends > p.starts THEN p_ends ELSE greatest(p_now, p.starts + interval '1 microsecond') END,
        cut = CASE WHEN p_ends > p_now THEN NULL ELSE greatest(p_now, p.starts + interval '1 microsecond') END
    WHERE p.id = p_period;
END $$;

-- Deletes the periods of an account that have not begun, with their keys and leases.
CREATE FUNCTION weir.drop_unbegun(p_account bigint, p_now timestamptz) RETURNS void
    LANGUAGE sql SET enable_seqscan = off AS $$
    DELETE FROM weir.periods p WHERE p.account_id = p_account AND p.starts > p_now AND p.state = 'open'
$$;

-- Copies terms into an account's open period and the next one: after an override, or plans apply --now.
CREATE FUNCTION weir.apply_terms(p_account bigint, p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_period bigint;
    v_keys   bigint[];
BEGIN
    PERFORM weir.fold_account(p_account);
    PERFORM FROM weir.accounts a WHERE a.id = p_account FOR UPDATE;
    FOR v_period IN
        SELECT p.id FROM weir.periods p WHERE p.account_id = p_account AND p.state = 'open' AND coalesce(p.cut, p.ends) > p_now
    LOOP
        PERFORM weir.copy_terms(v_period, NULL, NULL);
    END LOOP;
    SELECT array_agg(k.key) INTO v_keys FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id
        WHERE p.account_id = p_account AND p.state = 'open' AND coalesce(p.cut, p.ends) > p_now;
    PERFORM weir.reset_ceilings(coalesce(v_keys, '{}'));
    PERFORM weir.touch(p_account);
END $$;

-- A signed correction of a key's usage. A refund takes from overage first, then from free; an addition counts like
-- any unit. Moves free and overage only, never what nodes counted.
CREATE FUNCTION weir.adjust(p_key bigint, p_units bigint, p_reason text, p_actor text, p_now timestamptz) RETURNS weir.adjustments
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_account bigint;
    k         weir.keys;
    t         weir.totals;
    a         weir.adjustments;
    v_free    bigint;
    v_over    bigint;
    v_part    bigint;
BEGIN
    SELECT x.account_id INTO STRICT v_account FROM weir.keys x WHERE x.key = p_key;
    PERFORM weir.fold_account(v_account);
    SELECT * INTO k FROM weir.keys x WHERE x.key = p_key;
    SELECT * INTO t FROM weir.totals x WHERE x.key = p_key;
    IF p_units < 0 THEN
        v_over := greatest(p_units, -t.overage);
        v_free := p_units - v_over;
        IF v_free < -t.free THEN
            RAISE EXCEPTION 'cannot refund % units: only % are counted', -p_units, t.free + t.overage USING ERRCODE = 'WR002';
        END IF;
        -- What is not billable goes first: it is on no invoice.
        v_part := -least(t.not_billable, -v_over);
    ELSE
        v_free := CASE WHEN k.included IS NULL THEN p_units ELSE least(p_units, greatest(0, k.included - t.free)) END;
        v_over := p_units - v_free;
        v_part := CASE WHEN k.billability = 'yes' THEN 0 ELSE v_over END;
    END IF;
    UPDATE weir.totals x SET free = x.free + v_free, overage = x.overage + v_over, adjusted = x.adjusted + p_units,
        not_billable = x.not_billable + v_part, awaiting = least(x.awaiting, x.not_billable + v_part)
    WHERE x.key = p_key;
    INSERT INTO weir.adjustments (key, units, free, overage, reason, actor, at)
        VALUES (p_key, p_units, v_free, v_over, p_reason, p_actor, p_now) RETURNING * INTO a;
    PERFORM weir.reset_ceilings(ARRAY[p_key]);
    PERFORM weir.touch(v_account);
    RETURN a;
END $$;

-- Gives the periods that have not begun the terms of a new catalog, and tells every node.
CREATE FUNCTION weir.renew_unbegun(p_catalog bigint, p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    r      record;
    v_keys bigint[];
BEGIN
    FOR r IN SELECT p.id FROM weir.periods p WHERE p.state = 'open' AND p.starts > p_now ORDER BY p.id FOR UPDATE LOOP
        UPDATE weir.periods p SET catalog = p_catalog,
            plan = CASE WHEN p.source = 'calendar' OR NOT EXISTS (SELECT FROM weir.plan_terms t WHERE t.catalog = p_catalog AND t.plan = p.plan)
                        THEN (SELECT c.default_plan FROM weir.catalogs c WHERE c.number = p_catalog) ELSE p.plan END
        WHERE p.id = r.id;
        PERFORM weir.copy_terms(r.id, NULL, NULL);
    END LOOP;
    SELECT array_agg(k.key) INTO v_keys FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id WHERE p.state = 'open' AND p.starts > p_now;
    PERFORM weir.reset_ceilings(coalesce(v_keys, '{}'));
    PERFORM weir.touch(NULL);
END $$;

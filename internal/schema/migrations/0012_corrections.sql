-- Corrections that plan sync makes: periods found wrong, upgrades that forgive, confirmations that never came.

ALTER TABLE weir.periods ADD COLUMN replaced_by bigint REFERENCES weir.periods;  -- of a void row: the true one
CREATE INDEX periods_replaced ON weir.periods (replaced_by) WHERE replaced_by IS NOT NULL;

ALTER TABLE weir.totals ADD COLUMN void boolean NOT NULL DEFAULT false;  -- of a void period: what is counted here goes to the true one

-- Keys of void periods under which something was counted since they were found wrong.
CREATE TABLE weir.strays (
    key bigint PRIMARY KEY REFERENCES weir.keys ON DELETE CASCADE
);

CREATE FUNCTION weir.note_stray() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO weir.strays (key) VALUES (NEW.key) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER note_stray AFTER UPDATE OF free, overage ON weir.totals FOR EACH ROW
    WHEN (NEW.void AND NEW.free + NEW.overage <> NEW.carried) EXECUTE FUNCTION weir.note_stray();

ALTER TABLE weir.totals ADD COLUMN booked boolean NOT NULL DEFAULT false;  -- of a period that was closed: what moves here moves its books

-- Keys of closed periods whose totals have moved since their books were made.
CREATE TABLE weir.moved (
    key bigint PRIMARY KEY REFERENCES weir.keys ON DELETE CASCADE
);

CREATE FUNCTION weir.note_moved() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO weir.moved (key) VALUES (NEW.key) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER note_moved AFTER UPDATE OF free, overage, not_billable ON weir.totals FOR EACH ROW
    WHEN (NEW.booked AND (NEW.free, NEW.overage, NEW.not_billable) IS DISTINCT FROM (OLD.free, OLD.overage, OLD.not_billable)) EXECUTE FUNCTION weir.note_moved();

-- Closing periods that are due for their reports all the same: those that ended 45 minutes ago, and those whose draft has
-- 10 minutes left, some twice. Each is found by when it is due, however many wait for a node.
CREATE FUNCTION weir.closing_due(p_now timestamptz) RETURNS TABLE (period_id bigint)
    LANGUAGE sql STABLE AS $$
    SELECT p.id FROM weir.periods p
    WHERE p.state = 'closing' AND p.confirmed AND p.ends <= p_now - interval '45 minutes'
    UNION ALL
    SELECT k.period_id FROM weir.invoices i JOIN weir.segments s ON s.subscription = i.subscription AND s.window_end >= i.created - interval '1 hour'
    JOIN weir.keys k ON k.key = s.key JOIN weir.periods p ON p.id = k.period_id
    WHERE i.status = 'draft' AND i.finalizes_at <= p_now + interval '10 minutes' AND i.created > p_now - interval '50 minutes'
      AND p.state = 'closing' AND p.confirmed AND weir.close_deadline(p) <= p_now + interval '10 minutes'
$$;

-- Moves what a void period counted to the true one: a pair of adjustments per feature, counted forward there like any
-- units. Runs again for units that nodes fold later. The caller holds weir.fold and has folded.
CREATE FUNCTION weir.move_units(p_void bigint, p_true bigint, p_now timestamptz) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    r       record;
    v_free  bigint;
    v_moved bigint := 0;
    v_keys  bigint[];
BEGIN
    UPDATE weir.periods p SET replaced_by = p_true WHERE p.id = p_void AND p.replaced_by IS DISTINCT FROM p_true;
    SELECT coalesce(array_agg(k.key), '{}') INTO v_keys FROM weir.keys k WHERE k.period_id IN (p_void, p_true);
    PERFORM FROM weir.quotas q WHERE q.key = ANY (v_keys) ORDER BY q.key FOR UPDATE;
    UPDATE weir.quotas q SET ended = true FROM weir.keys k WHERE k.key = q.key AND k.period_id = p_void AND NOT q.ended;
    FOR r IN
        SELECT k.key AS void_key, n.key AS true_key, k.account_id, t.free + t.overage - t.carried AS units, t.free - t.carried AS free, t.overage,
               n.included, n.billability, nt.free AS true_free
        FROM weir.keys k
        JOIN weir.totals t ON t.key = k.key
        LEFT JOIN weir.keys n ON n.period_id = p_true AND n.feature_id = k.feature_id
        LEFT JOIN weir.totals nt ON nt.key = n.key
        WHERE k.period_id = p_void AND t.free + t.overage <> t.carried ORDER BY k.key
    LOOP
        IF r.true_key IS NULL THEN
            PERFORM weir.find('void_units', r.void_key::text, r.account_id, format(
                '%s units were counted in a period that was found wrong, under a feature that the true period lacks: add them by hand with worker adjust', r.units), p_now);
            CONTINUE;
        END IF;
        v_free := CASE WHEN r.included IS NULL THEN r.units ELSE least(r.units, greatest(0, r.included - r.true_free)) END;
        INSERT INTO weir.adjustments (key, units, free, overage, reason, actor, at) VALUES
            (r.void_key, -r.units, -r.free, -r.overage, 'period found wrong', 'weir', p_now),
            (r.true_key, r.units, v_free, r.units - v_free, 'period found wrong', 'weir', p_now);
        UPDATE weir.totals t SET free = t.carried, overage = 0, not_billable = 0, awaiting = 0, adjusted = t.adjusted - r.units WHERE t.key = r.void_key;
        UPDATE weir.totals t SET free = t.free + v_free, overage = t.overage + r.units - v_free, adjusted = t.adjusted + r.units,
            not_billable = t.not_billable + CASE WHEN r.billability = 'yes' THEN 0 ELSE r.units - v_free END,
            awaiting = t.awaiting + CASE WHEN r.billability = 'awaiting' THEN r.units - v_free ELSE 0 END
        WHERE t.key = r.true_key;
        v_moved := v_moved + r.units;
    END LOOP;
    PERFORM weir.reset_ceilings(v_keys);
    RETURN v_moved;
END $$;

-- Moves what nodes counted under void periods since they were found wrong, of up to 500 keys. What has no place in the
-- true period is found, and left to a person. The caller holds weir.fold.
CREATE FUNCTION weir.drain_voids(p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    v_keys bigint[] := ARRAY(SELECT s.key FROM weir.strays s ORDER BY s.key LIMIT 500);
    r      record;
BEGIN
    IF v_keys = '{}' THEN
        RETURN;
    END IF;
    DELETE FROM weir.strays s WHERE s.key = ANY (v_keys);
    -- The locks of all periods in one order: an ask may have keys of several.
    PERFORM FROM weir.quotas q WHERE q.key IN (
        SELECT n.key FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id
        JOIN weir.keys n ON n.period_id = ANY (ARRAY[p.id, p.replaced_by]) WHERE k.key = ANY (v_keys)) ORDER BY q.key FOR UPDATE;
    FOR r IN
        SELECT DISTINCT p.id, p.replaced_by, p.account_id FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id
        WHERE k.key = ANY (v_keys) ORDER BY p.id
    LOOP
        PERFORM weir.move_units(r.id, r.replaced_by, p_now);
        UPDATE weir.chains c SET due = true FROM weir.keys k WHERE k.period_id = r.replaced_by AND c.key = k.key;
        PERFORM weir.touch(r.account_id);
    END LOOP;
END $$;

-- on_upgrade: forgive moves overage to the larger allowance; what is not billable goes first. p_keys and p_included are
-- the keys as they were before the change.
CREATE FUNCTION weir.forgive_upgrade(p_keys bigint[], p_included bigint[], p_now timestamptz) RETURNS void
    LANGUAGE sql VOLATILE AS $$
    WITH moved AS (
        UPDATE weir.totals t SET free = t.free + m.units, overage = t.overage - m.units,
            not_billable = t.not_billable - least(t.not_billable, m.units),
            awaiting = least(t.awaiting, t.not_billable - least(t.not_billable, m.units))
        FROM unnest(p_keys, p_included) AS b(key, included)
        JOIN weir.keys k ON k.key = b.key
        JOIN weir.totals x ON x.key = b.key
        CROSS JOIN LATERAL (SELECT CASE WHEN k.included IS NULL THEN x.overage ELSE least(x.overage, greatest(0, k.included - x.free)) END AS units) m
        WHERE t.key = b.key AND k.on_upgrade = 'forgive' AND m.units > 0
          AND b.included IS NOT NULL AND (k.included IS NULL OR k.included > b.included)
        RETURNING t.key, m.units)
    INSERT INTO weir.adjustments (key, units, free, overage, reason, actor, at)
    SELECT m.key, 0, m.units, -m.units, 'the upgrade forgives overage (on_upgrade)', 'weir', p_now FROM moved m
$$;

CREATE INDEX periods_unconfirmed ON weir.periods (starts) WHERE state = 'open' AND NOT confirmed AND source = 'subscription';

-- Periods whose confirmation did not come within 6 h of their start stop at what is included, and are found.
CREATE FUNCTION weir.stop_unconfirmed(p_now timestamptz, p_most integer) RETURNS bigint
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    r         record;
    v_periods bigint[];
    v_keys    bigint[];
BEGIN
    SELECT array_agg(x.id ORDER BY x.id) INTO v_periods FROM (
        SELECT p.id FROM weir.periods p
        WHERE p.state = 'open' AND NOT p.confirmed AND p.source = 'subscription' AND p.starts < p_now - interval '6 hours'
          AND EXISTS (SELECT FROM weir.keys k WHERE k.period_id = p.id AND k.billability = 'awaiting') LIMIT p_most) x;
    IF v_periods IS NULL THEN
        RETURN 0;
    END IF;
    FOR r IN SELECT DISTINCT p.account_id FROM weir.periods p WHERE p.id = ANY (v_periods) LOOP
        PERFORM weir.fold_account(r.account_id);
    END LOOP;
    -- The locks of all of them in one order: an ask may have keys of several.
    PERFORM FROM weir.accounts a WHERE a.id IN (SELECT p.account_id FROM weir.periods p WHERE p.id = ANY (v_periods)) ORDER BY a.id FOR NO KEY UPDATE;
    UPDATE weir.keys k SET billability = 'no' WHERE k.period_id = ANY (v_periods) AND k.billability = 'awaiting';
    SELECT array_agg(k.key) INTO v_keys FROM weir.keys k WHERE k.period_id = ANY (v_periods);
    PERFORM weir.reset_ceilings(v_keys);
    FOR r IN SELECT p.id, p.account_id FROM weir.periods p WHERE p.id = ANY (v_periods) ORDER BY p.id LOOP
        PERFORM weir.find('unconfirmed_period', r.id::text, r.account_id,
            'the renewal was not confirmed by Stripe within 6 hours: overage stops at what is included. Run worker sync for this account', p_now);
        PERFORM weir.touch(r.account_id);
    END LOOP;
    RETURN cardinality(v_periods);
END $$;

-- An account whose customer went to another account: nobody can be billed for it from now on. It keeps its plan and
-- what is included until its period ends, then it falls to the default plan. Its segments have ended, the caller holds
-- weir.fold and has folded.
CREATE FUNCTION weir.lose_customer(p_account bigint, p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_period weir.periods;
    v_keys   bigint[];
BEGIN
    PERFORM FROM weir.accounts a WHERE a.id = p_account FOR NO KEY UPDATE;
    PERFORM weir.catalog_gate(false);
    SELECT * INTO v_period FROM weir.periods p WHERE p.id = weir.period_at(p_account, p_now);
    IF v_period.source IS DISTINCT FROM 'subscription' THEN
        RETURN;
    END IF;
    UPDATE weir.accounts a SET plan_until = least(a.plan_until, v_period.ends) WHERE a.id = p_account;
    UPDATE weir.keys k SET billability = 'no' FROM weir.periods p
        WHERE k.account_id = p_account AND p.id = k.period_id AND p.state = 'open' AND coalesce(p.cut, p.ends) > p_now;
    PERFORM weir.replace_unbegun(p_account, weir.drop_unbegun(p_account, p_now), p_now);
    SELECT coalesce(array_agg(k.key), '{}') INTO v_keys FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id
        WHERE k.account_id = p_account AND p.state = 'open' AND coalesce(p.cut, p.ends) > p_now;
    PERFORM weir.reset_ceilings(v_keys);
    PERFORM weir.ensure_period(p_account, coalesce(v_period.cut, v_period.ends));
    PERFORM weir.touch(p_account);
END $$;

-- Invoices read back: what a line bills is the only proof of billing.

-- Whether no invoice can bill more of a segment: it ended without any report; or an invoice of its window, or a later
-- one, is no draft any more; or a day has passed since its window's end, in which the sweep has listed what there is.
CREATE FUNCTION weir.segment_over(s weir.segments, p_now timestamptz) RETURNS boolean
    LANGUAGE sql STABLE SET enable_seqscan = off AS $$
    SELECT (s.ends IS NOT NULL AND NOT EXISTS (SELECT FROM weir.reports r WHERE r.segment = s.id AND NOT r.replaced AND r.state <> 'rejected'))
        OR EXISTS (SELECT FROM weir.invoices i WHERE i.subscription = s.subscription AND i.status IN ('open', 'paid', 'uncollectible', 'void')
                   AND i.created >= x.ends - interval '1 second')
        OR (x.ends <= p_now - interval '26 hours'
            AND NOT EXISTS (SELECT FROM weir.invoices i WHERE i.subscription = s.subscription AND (i.status = 'draft' OR i.status IS NULL OR i.wanted > i.read)
                            AND i.created >= x.ends - interval '1 minute'))
    FROM (SELECT least(s.window_end, (SELECT u.ended_at FROM weir.subscriptions u WHERE u.subscription = s.subscription)) AS ends) x
$$;

-- A period that no read confirmed while it ran (nobody could read) is confirmed by a metered line of exactly its bounds
-- on an invoice of the item that the account's overage went to before. What awaited that is billable then: on this
-- invoice while it is a draft, late after it. Returns the key, or nothing.
CREATE FUNCTION weir.confirm_by_line(l weir.invoice_lines, p_customer text, p_now timestamptz) RETURNS bigint[]
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    k weir.keys;
    s weir.segments;
BEGIN
    SELECT x.* INTO k FROM weir.customers c
        JOIN weir.periods p ON p.account_id = c.account_id AND p.starts = l.starts AND p.ends = l.ends
            AND p.source = 'subscription' AND NOT p.confirmed AND p.state IN ('open', 'closing', 'closed') AND p.ends <= p_now
        JOIN weir.keys x ON x.period_id = p.id AND x.meter = l.meter AND NOT EXISTS (SELECT FROM weir.segments g WHERE g.key = x.key)
        WHERE c.customer = p_customer;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    SELECT g.* INTO s FROM weir.keys o JOIN weir.segments g ON g.key = o.key
        WHERE o.account_id = k.account_id AND o.feature_id = k.feature_id AND g.starts < l.starts ORDER BY g.starts DESC, g.id DESC LIMIT 1;
    IF s.customer IS DISTINCT FROM p_customer OR (s.subscription, s.item, s.price) IS DISTINCT FROM (l.subscription, l.item, l.price) THEN
        RETURN '{}';
    END IF;
    PERFORM weir.fold_account(k.account_id);
    INSERT INTO weir.segments (key, customer, subscription, item, price, product, currency, tax_behavior, unit_amount, meter, window_start, window_end, starts, opened_at)
        VALUES (k.key, s.customer, s.subscription, s.item, s.price, s.product, s.currency, s.tax_behavior, s.unit_amount, s.meter, l.starts, l.ends, l.starts, p_now);
    UPDATE weir.periods p SET confirmed = true WHERE p.id = k.period_id;
    UPDATE weir.keys x SET billability = 'yes' WHERE x.key = k.key;
    UPDATE weir.totals t SET not_billable = t.not_billable - t.awaiting, awaiting = 0 WHERE t.key = k.key;
    INSERT INTO weir.chains AS h (key, due) VALUES (k.key, true) ON CONFLICT (key) DO UPDATE SET due = true;
    PERFORM weir.unfind('unconfirmed_period', k.period_id::text, 'invoice ' || l.invoice, p_now);
    PERFORM weir.book(ARRAY[k.key], p_now);
    RETURN ARRAY[k.key];
END $$;

-- Finds what will be late: where a period's overage went to two subscriptions, its books wait for the last window, which
-- may be a year's; what the other one can bill no more of, and did not, is known before.
CREATE FUNCTION weir.note_short(p_subscription text, p_now timestamptz) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE r record;
BEGIN
    UPDATE weir.findings f SET cleared_at = p_now, cleared_by = 'the books' FROM weir.segments s JOIN weir.books b ON b.key = s.key AND b.final
        WHERE s.subscription = p_subscription AND f.kind = 'late_to_come' AND f.cleared_at IS NULL AND f.subject = s.key::text;
    FOR r IN
        SELECT s.key, k.account_id, min(s.customer) AS customer, bool_and(weir.segment_over(s, p_now)) AS over,
               sum((SELECT coalesce(sum(y.value), 0) FROM weir.reports y WHERE y.segment = s.id AND NOT y.replaced))::bigint
                   - coalesce((SELECT sum(x.units) FROM weir.invoiced x JOIN weir.invoice_lines n ON n.line = x.line
                               WHERE x.key = s.key AND n.subscription = p_subscription AND n.weir_id IS NULL), 0)::bigint AS units,
               (SELECT max(o.window_end) FROM weir.segments o WHERE o.key = s.key AND o.subscription <> p_subscription) AS until
        FROM weir.segments s JOIN weir.books b ON b.key = s.key AND NOT b.final JOIN weir.keys k ON k.key = s.key
        WHERE s.subscription = p_subscription GROUP BY s.key, k.account_id ORDER BY s.key
    LOOP
        IF r.over AND r.units > 0 AND r.until IS NOT NULL THEN
            PERFORM weir.find('late_to_come', r.key::text, r.account_id, format(
                '%s units that were reported for %s are on none of its final invoices, and no later one can bill them: they count as pending until the last window of their period ends, %s, and are late then',
                r.units, r.customer, to_char(r.until AT TIME ZONE 'UTC', 'YYYY-MM-DD')), p_now);
        ELSE
            PERFORM weir.unfind('late_to_come', r.key::text, 'the books', p_now);
        END IF;
    END LOOP;
END $$;

-- Gives a read invoice's lines to the keys that they bill, marks finished windows final, and books. Lines of drafts and
-- of voided invoices bill nothing. A line's quantity goes to its window's periods oldest first, each up to its
-- reported sum, the rest to the last. Returns the lines on a meter of ours that belong to no key.
CREATE FUNCTION weir.settle_invoice(p_invoice text, p_now timestamptz) RETURNS text[]
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    i       weir.invoices;
    l       weir.invoice_lines;
    v_keys  bigint[];
    v_final bigint[];
    v_lost  text[] := '{}';
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    SELECT * INTO i FROM weir.invoices x WHERE x.invoice = p_invoice FOR UPDATE;
    SELECT coalesce(array_agg(DISTINCT x.key), '{}') INTO v_keys FROM weir.invoiced x JOIN weir.invoice_lines n ON n.line = x.line WHERE n.invoice = p_invoice;
    DELETE FROM weir.invoiced x USING weir.invoice_lines n WHERE n.line = x.line AND n.invoice = p_invoice;
    FOR l IN SELECT * FROM weir.invoice_lines n WHERE n.invoice = p_invoice AND n.meter IS NOT NULL AND n.weir_id IS NULL AND i.status <> 'deleted' LOOP
        v_keys := v_keys || weir.confirm_by_line(l, i.customer, p_now);
    END LOOP;
    IF i.status IN ('open', 'paid', 'uncollectible') THEN
        FOR l IN SELECT * FROM weir.invoice_lines n WHERE n.invoice = p_invoice AND n.quantity <> 0 AND (n.meter IS NOT NULL OR n.weir_id IS NOT NULL)
                 ORDER BY n.starts, n.line LOOP
            IF NOT weir.allocate_line(l, i.customer) THEN
                v_lost := v_lost || l.line;
            END IF;
        END LOOP;
    END IF;
    SELECT v_keys || coalesce(array_agg(DISTINCT x.key), '{}') INTO v_keys FROM weir.invoiced x JOIN weir.invoice_lines n ON n.line = x.line WHERE n.invoice = p_invoice;
    -- What the invoice settles is settled before any books are made of it.
    UPDATE weir.late x SET state = 'invoiced', invoice = p_invoice, settled_at = p_now
        FROM weir.invoice_lines n WHERE n.invoice = p_invoice AND n.weir_id = x.weir_id AND x.state IN ('stored', 'sent')
          AND i.status IN ('open', 'paid', 'uncollectible');
    -- A voided invoice bills nothing, and a credit on it gives nothing back.
    UPDATE weir.late x SET state = 'netted', settled_at = p_now, reason = 'its invoice was voided'
        FROM weir.invoice_lines n WHERE n.invoice = p_invoice AND i.status = 'void'
          AND (n.weir_id = x.weir_id AND x.state IN ('sent', 'invoiced') OR n.line = x.line AND x.state IN ('held', 'stored', 'credited'));
    IF i.status IN ('open', 'paid', 'uncollectible', 'void') THEN
        -- A window is final when an invoice that is no draft any more was made at its end or after it. What ended before
        -- its window did (a cancel, another item) ends with it.
        SELECT coalesce(array_agg(DISTINCT s.key), '{}') INTO v_final
        FROM weir.segments s
        JOIN weir.books b ON b.key = s.key AND NOT b.final
        LEFT JOIN weir.subscriptions u ON u.subscription = s.subscription
        WHERE s.subscription = i.subscription
          -- An invoice of before the end may show the window's line all the same, with nothing on it yet.
          AND i.created >= least(s.window_end, coalesce(u.ended_at, 'infinity')) - interval '1 second'
          AND (i.billing_reason = 'subscription_cycle' OR u.ended_at IS NOT NULL
               OR EXISTS (SELECT FROM weir.invoice_lines n WHERE n.invoice = p_invoice AND n.meter = s.meter
                          AND n.starts < s.window_end AND n.ends > s.window_start))
          -- every stretch of the key is over
          AND NOT EXISTS (SELECT FROM weir.segments o WHERE o.key = s.key AND o.subscription <> s.subscription AND NOT weir.segment_over(o, p_now));
        PERFORM weir.finalize(v_final, 'invoice ' || p_invoice, p_now);
    END IF;
    PERFORM weir.book(v_keys, p_now);
    -- Whoever voids an invoice may have billed its usage on another one, or not want it billed: a person decides.
    UPDATE weir.late x SET state = 'held' WHERE i.status = 'void' AND x.key = ANY (v_keys) AND x.state = 'stored' AND x.units > 0 AND x.attempts = 0
        AND x.actor IS NULL AND x.created_at = p_now;
    IF i.status <> 'draft' THEN
        PERFORM weir.note_short(i.subscription, p_now);
    END IF;
    RETURN v_lost;
END $$;

CREATE FUNCTION weir.allocate_line(l weir.invoice_lines, p_customer text) RETURNS boolean
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_rest bigint := l.quantity;
    v_give bigint;
    v_last bigint;
    v_late bigint;
    r      record;
BEGIN
    IF l.weir_id IS NOT NULL THEN
        SELECT x.key INTO v_late FROM weir.late x WHERE x.weir_id = l.weir_id;
        IF FOUND THEN
            INSERT INTO weir.invoiced (line, key, units) VALUES (l.line, v_late, l.quantity);
            RETURN true;
        END IF;
    END IF;
    FOR r IN
        SELECT s.key, sum(weir.segment_sum(s.id)) - coalesce((
                   -- Only what bills the same stretches: not what another customer's, or another price's, line bills of the key.
                   SELECT sum(x.units) FROM weir.invoiced x JOIN weir.invoice_lines n ON n.line = x.line WHERE x.key = s.key AND n.weir_id IS NULL
                       AND (l.subscription IS NULL OR n.subscription = l.subscription) AND (l.price IS NULL OR n.price = l.price)), 0) AS open
        FROM weir.segments s JOIN weir.keys k ON k.key = s.key JOIN weir.periods p ON p.id = k.period_id AND p.state <> 'void'
        WHERE s.meter = l.meter AND s.customer = p_customer AND (l.subscription IS NULL OR s.subscription = l.subscription)
          AND (l.price IS NULL OR s.price = l.price) AND s.window_start < l.ends AND s.window_end > l.starts
        GROUP BY s.key, p.starts ORDER BY p.starts
    LOOP
        v_last := r.key;
        v_give := least(v_rest, greatest(0, r.open));
        IF v_give > 0 THEN
            INSERT INTO weir.invoiced (line, key, units) VALUES (l.line, r.key, v_give);
            v_rest := v_rest - v_give;
        END IF;
    END LOOP;
    IF v_last IS NULL THEN
        RETURN false;
    END IF;
    IF v_rest <> 0 THEN
        INSERT INTO weir.invoiced AS x (line, key, units) VALUES (l.line, v_last, v_rest)
            ON CONFLICT (line, key) DO UPDATE SET units = x.units + excluded.units;
    END IF;
    RETURN true;
END $$;

-- Settles a subscription's read invoices again for windows that are not final yet (a close that came after its
-- invoice), and declares final what ended long enough ago without one. The caller has just listed all of its invoices.
CREATE FUNCTION weir.end_without_invoice(p_subscription text, p_now timestamptz, p_after interval) RETURNS void
    LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    r      record;
    v_keys bigint[];
BEGIN
    PERFORM FROM weir.fold FOR UPDATE;
    PERFORM FROM weir.chains c WHERE c.key IN (SELECT s.key FROM weir.segments s JOIN weir.books b ON b.key = s.key AND NOT b.final WHERE s.subscription = p_subscription)
        ORDER BY c.key FOR UPDATE;
    FOR r IN
        SELECT i.invoice FROM weir.invoices i
        WHERE i.subscription = p_subscription AND i.status IN ('open', 'paid', 'uncollectible', 'void')
          AND (EXISTS (SELECT FROM weir.segments s JOIN weir.books b ON b.key = s.key AND NOT b.final
                       WHERE s.subscription = p_subscription AND i.created > s.starts)
               OR EXISTS (SELECT FROM weir.invoice_lines n JOIN weir.customers c ON c.customer = i.customer
                          JOIN weir.periods p ON p.account_id = c.account_id AND p.starts = n.starts AND p.ends = n.ends AND NOT p.confirmed AND p.state = 'closed'
                          WHERE n.invoice = i.invoice)) ORDER BY i.created
    LOOP
        PERFORM weir.settle_invoice(r.invoice, p_now);
    END LOOP;
    SELECT coalesce(array_agg(DISTINCT s.key), '{}') INTO v_keys
    FROM weir.segments s
    JOIN weir.books b ON b.key = s.key AND NOT b.final
    LEFT JOIN weir.subscriptions u ON u.subscription = s.subscription
    WHERE s.subscription = p_subscription AND least(s.window_end, coalesce(u.ended_at, 'infinity')) <= p_now - p_after
      AND NOT EXISTS (SELECT FROM weir.invoices i WHERE i.subscription = p_subscription AND (i.status = 'draft' OR i.status IS NULL OR i.wanted > i.read)
                      AND i.created >= least(s.window_end, coalesce(u.ended_at, 'infinity')) - interval '1 minute')
      AND NOT EXISTS (SELECT FROM weir.segments o WHERE o.key = s.key AND o.subscription <> s.subscription AND NOT weir.segment_over(o, p_now));
    PERFORM weir.finalize(v_keys, 'no invoice', p_now);
    PERFORM weir.note_short(p_subscription, p_now);
END $$;

-- Invoices read back: what a line bills is the only proof of billing.

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
    IF i.status IN ('open', 'paid', 'uncollectible') THEN
        FOR l IN SELECT * FROM weir.invoice_lines n WHERE n.invoice = p_invoice AND n.quantity <> 0 AND (n.meter IS NOT NULL OR n.weir_id IS NOT NULL)
                 ORDER BY n.starts, n.line LOOP
            IF NOT weir.allocate_line(l, i.customer) THEN
                v_lost := v_lost || l.line;
            END IF;
        END LOOP;
    END IF;
    SELECT v_keys || coalesce(array_agg(DISTINCT x.key), '{}') INTO v_keys FROM weir.invoiced x JOIN weir.invoice_lines n ON n.line = x.line WHERE n.invoice = p_invoice;
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
          AND NOT EXISTS (SELECT FROM weir.segments o LEFT JOIN weir.subscriptions ou ON ou.subscription = o.subscription
                          WHERE o.key = s.key AND o.id > s.id AND o.subscription <> s.subscription AND ou.ended_at IS NULL
                            AND o.window_end > p_now);
        PERFORM weir.finalize(v_final, 'invoice ' || p_invoice, p_now);
    END IF;
    UPDATE weir.late x SET state = 'invoiced', invoice = p_invoice, settled_at = p_now
        FROM weir.invoice_lines n WHERE n.invoice = p_invoice AND n.weir_id = x.weir_id AND x.state IN ('stored', 'sent')
          AND i.status IN ('open', 'paid', 'uncollectible');
    UPDATE weir.late x SET state = 'netted', settled_at = p_now, reason = 'its invoice was voided'
        FROM weir.invoice_lines n WHERE n.invoice = p_invoice AND n.weir_id = x.weir_id AND x.state IN ('sent', 'invoiced') AND i.status = 'void';
    PERFORM weir.book(v_keys, p_now);
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
                   SELECT sum(x.units) FROM weir.invoiced x JOIN weir.invoice_lines n ON n.line = x.line WHERE x.key = s.key AND n.weir_id IS NULL), 0) AS open
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
    FOR r IN
        SELECT i.invoice FROM weir.invoices i
        WHERE i.subscription = p_subscription AND i.status IN ('open', 'paid', 'uncollectible', 'void')
          AND EXISTS (SELECT FROM weir.segments s JOIN weir.books b ON b.key = s.key AND NOT b.final
                      WHERE s.subscription = p_subscription AND i.created > s.starts) ORDER BY i.created
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
      AND NOT EXISTS (SELECT FROM weir.segments o LEFT JOIN weir.subscriptions ou ON ou.subscription = o.subscription
                      WHERE o.key = s.key AND o.id > s.id AND least(o.window_end, coalesce(ou.ended_at, 'infinity')) > p_now - p_after);
    PERFORM weir.finalize(v_keys, 'no invoice', p_now);
END $$;

package admin

// remedy says of a kind of finding what has happened, which rule Weir follows meanwhile, and what a person does about
// it. docs/troubleshooting.md has the same kinds.
type remedy struct {
	Title string // what has happened
	Rule  string // what Weir does, and does not do, until it is mended
	Next  string // what to do
}

// remedies are all kinds that anything raises; a test holds the list against the code.
func remedies() map[string]remedy {
	all := map[string]remedy{}
	for _, some := range []map[string]remedy{planRemedies(), itemRemedies(), reportRemedies(), bookRemedies(), systemRemedies()} {
		for kind, r := range some {
			all[kind] = r
		}
	}
	return all
}

// planRemedies: which plan an account is on.
func planRemedies() map[string]remedy {
	return map[string]remedy{
		"unknown_price": {"A subscription has a price that no plan names",
			"The account keeps its last plan. Overage is recorded and not billable until the price is known; repaired before the invoice's deadline, it is billed after all.",
			"Name the price in the plan file, run worker plans apply, then worker replay."},
		"unmapped_customer": {"A customer with one of our prices belongs to no account",
			"Nothing can be billed before the customer is mapped. What Stripe says about it is kept.",
			"Put account_id into the customer's metadata, or run worker map --reason TEXT ACCOUNT CUSTOMER."},
		"bad_reference": {"An account id that came from Stripe cannot be one",
			"An account id has 1 to 255 bytes. The customer stays unmapped.",
			"Correct the metadata or the checkout's client_reference_id at Stripe."},
		"mapping_conflict": {"Two customers claim one account, or one customer two, or metadata name an account that a person unmapped",
			"One account has one customer, in both directions. The older mapping stands, and the newcomer is not billed. What a person unmapped stays unmapped, whatever the metadata still say: they stand for good, and would undo it.",
			"Decide which is right: worker map --reason TEXT ACCOUNT CUSTOMER. Where nobody is, take account_id out of the customer's metadata. Units that were reported stay with their customer."},
		"customer_deleted": {"A customer was deleted at Stripe",
			"Its subscriptions went with it: the account is on the default plan.",
			"Map the account to another customer, or leave it on the default plan."},
		"customer_lost": {"An account has lost its customer",
			"Without a customer overage is not billable: it stops at what is included, and the plan ends with its period. What was reported stays with the customer it went to.",
			"Map the account to its own customer: worker map --reason TEXT ACCOUNT CUSTOMER."},
		"plan_conflict": {"Live subscriptions select different plans",
			"The account keeps its last plan until only one is left.",
			"End one of the subscriptions at Stripe."},
		"no_period": {"A subscription came without a period",
			"A zero period is refused: nothing was changed.",
			"Run worker sync ACCOUNT. If it stays, look at the subscription's items at Stripe."},
		"unconfirmed_period": {"A renewal was not confirmed within 6 hours",
			"A period that Stripe has not confirmed reports nothing, and overage stops at what is included.",
			"Run worker sync ACCOUNT, and look whether webhooks arrive."},
		"early_end": {"A subscription ended more than 15 minutes before Weir learned of it",
			"Counters are not cut backwards: units counted in between stay in the old period.",
			"Check what was admitted meanwhile; correct it with worker adjust where that is fair."},
		"void_units": {"Units of a period that turned out wrong have no place in the true one",
			"A wrong period is void, and its units move to the true one under the same feature. This feature is not in it.",
			"Add them by hand with worker adjust, or leave them."},
	}
}

// itemRemedies: what of a subscription bills usage.
func itemRemedies() map[string]remedy {
	return map[string]remedy{
		"quantity": {"The base item's quantity is not 1, and the plan does not say per: quantity",
			"Included units and maximum are per subscription. Nothing is reported until the two agree.",
			"Set the quantity to 1 at Stripe, or say per: quantity in the plan file and run worker plans apply."},
		"item_missing": {"The plan bills overage, and no item of the subscription is on the meter",
			"Without the item Stripe bills nothing. Overage is recorded as not billable; repaired before the invoice's deadline, it is billed after all.",
			"Add the metered price to the subscription at Stripe."},
		"two_items": {"Two items of a customer are on one meter",
			"Each would bill the same usage, so nothing is reported until one is left.",
			"Remove one of the items at Stripe."},
		"windows_differ": {"Metered items of an account have different billing periods",
			"A report lies in one billing window, so nothing is reported until they agree.",
			"Align the items' billing periods at Stripe."},
		"price": {"A metered price is not what the plan file says",
			"Only the excess is reported: a free tier would give the included units twice, another price would bill what nobody agreed to. Nothing is reported on it.",
			"Run worker plans check; correct the price at Stripe or the plan file."},
		"meter": {"A meter does not add up what is reported",
			"Only a meter that sums raw events bills what is reported. Nothing is reported on it.",
			"Run worker plans check, and make a meter with the formula sum."},
		"meter_inactive": {"A meter was archived",
			"Reports to it are refused and wait. They are sent again by themselves once it is active.",
			"Reactivate the meter at Stripe."},
	}
}

// reportRemedies: what was sent to Stripe.
func reportRemedies() map[string]remedy {
	return map[string]remedy{
		"meter_errors": {"Stripe refused meter events after it had accepted them",
			"The links that the error report names are refused, and open windows on the meter are compared with their summaries at once.",
			"The message has Stripe's code. Mend its cause, then run worker replay."},
		"report_rejected": {"Stripe refused a report for what it says",
			"A refused report blocks no later one. It is replaced by a new one of the same units once its cause is mended.",
			"Read Stripe's message, mend the cause, then run worker replay."},
		"report_outcome": {"An answer of Stripe was lost, and the summary does not decide what became of the report",
			"Nothing is sent twice on a guess: the report waits for a person.",
			"Compare the meter's events in Stripe's Dashboard with the report by hand."},
		"too_large": {"More units than one meter event can hold",
			"A report holds less than 10^15 units. Nothing of them is reported.",
			"Take the units away with worker adjust, and bill them by hand."},
		"summary_gap": {"Stripe's summary shows less than it accepted",
			"Before finalization a gap alerts and sends nothing: summaries lag. Only the invoice's line decides.",
			"Wait for an hour. If it stays, ask Stripe before the invoice is final."},
		"foreign_usage": {"A meter has amounts that Weir did not send",
			"Weir must be the only sender. Automatic decisions for this customer are frozen.",
			"Stop what else sends on the meter, then run worker reconcile."},
		"sending_stopped": {"All reports are held up",
			"While a stop stands nothing is sent and nothing is marked; webhooks of drafts that wait are answered 503, so that Stripe keeps them open for up to 72 hours.",
			"End the cause: the message names it. Two of the three end by themselves."},
		"clock_skew": {"The database's clock differs from Stripe's",
			"Over 30 seconds warns; over 5 minutes stops all reports, for their stamps would be wrong.",
			"Set the clock of the database's machine: run an NTP client there."},
	}
}

// bookRemedies: what invoices say.
func bookRemedies() map[string]remedy {
	return map[string]remedy{
		"late": {"Usage missed its invoice",
			"Late usage is never billed behind a customer's back: the plan's policy decides, and the default is to hold it for a person.",
			"Decide: release it onto an invoice, or forgive it, on the account's page or with worker late release."},
		"late_to_come": {"Units that were reported are on none of their subscription's final invoices",
			"The period went on with another subscription, whose window is still open: its books wait for that, and the units count as pending. When it ends they are late, and the plan's policy decides.",
			"Look at the cancel or the invoice of the first subscription now, a year may be left: usage is dropped by a cancel without invoice_now, and by a swapped price."},
		"late_aging": {"Late usage has been held for more than 7 days",
			"It stays held until a person decides.",
			"Decide: release it onto an invoice, or forgive it, on the account's page or with worker late release."},
		"overbilled": {"An invoice bills more than was counted",
			"The difference stands as negative late usage. Only a credit note settles it, whatever the plan's policy.",
			"Release it as a credit note, on the account's page or with worker late release --policy credit_note --reason TEXT ID."},
		"late_refused": {"Stripe refused the invoice item or the credit note of late usage",
			"The units stay late; nothing was billed.",
			"The message says why. Mend it and release it again."},
		"late_deleted": {"The invoice item of late usage was deleted at Stripe",
			"Nobody bills the units any more: they are held again for a person.",
			"Decide again: onto an invoice, or forgive it, on the account's page or with worker late release."},
		"sweep_skipped": {"The daily sweep could not look at something",
			"It went on with the rest. A webhook that was lost of this one object would go unseen.",
			"The message says why; it is tried again each day. Look at the object at Stripe."},
		"foreign_line": {"An invoice bills usage on our meter that no period explains",
			"The line counts as nobody's: it lowers no account's numbers.",
			"Look at the invoice at Stripe; a second sender or an old subscription made it."},
		"given_up": {"A period was closed without waiting for a node",
			"Close waits until the invoice's deadline, never longer. What the node still brings is late.",
			"Recover the node's journal: start an enforcer on its folder."},
	}
}

// systemRemedies: the installation itself.
func systemRemedies() map[string]remedy {
	return map[string]remedy{
		"database_identity": {"This role may not see whether the database was restored",
			"A restored database may have forgotten what was sent. Without the right only a person can notice it.",
			"Grant the right that the message names, or say worker restored by hand after each restore."},
	}
}

// unknownRemedy is for a kind that a newer program raised.
func unknownRemedy(kind string) remedy {
	return remedy{"A finding of kind " + kind, "This program does not know the kind: a newer one raised it.", "docs/troubleshooting.md of the newer version says what it means."}
}

func (a *Admin) remedy(kind string) remedy {
	if r, ok := a.remedies[kind]; ok {
		return r
	}
	return unknownRemedy(kind)
}

// stopRemedies are what to do about each cause that holds up reports.
func stopRemedy(cause string) remedy {
	const rule = "Nothing is sent and nothing is marked. Webhooks of drafts that wait are answered 503, so that Stripe keeps them open for up to 72 hours."
	switch cause {
	case "unauthorized":
		return remedy{"All reports are held up: Stripe does not accept the key", rule, "Set a valid STRIPE_API_KEY; sending goes on by itself."}
	case "clock":
		return remedy{"All reports are held up: the database's clock is off Stripe's", rule, "Set the database's clock; sending goes on by itself."}
	case "restored":
		return remedy{"All reports are held up: the database was restored or failed over", rule,
			"Let the worker compare every open window with its summary, or run worker restored --go-on --reason TEXT after looking into it."}
	}
	return remedy{"All reports are held up: " + cause, rule, "The worker's log says why."}
}

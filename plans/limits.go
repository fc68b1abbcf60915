package plans

import "time"

// What a plan file may hold at most. Past each of these the file is refused with an error that
// names the limit; docs/plan-file.md lists them for the people who write plan files.
const (
	maxFileBytes    = 1 << 20
	maxEncodedBytes = 32 << 20 // of the JSON form, whose defaults are spelled out; a full file gives 20 MiB
	maxPlans        = 256
	maxFeatures     = 256
	maxPrices       = 100 // per plan
	maxProblems     = 100 // printed; the rest is counted
	maxDepth        = 16  // nested mappings and lists; a valid file needs 7

	// The YAML library's time and stack grow with the square of these; a valid file needs 256 and 0.
	maxSiblings = 1000 // keys of one block mapping
	maxBare     = 100  // keys without a value in {…}, in the whole file

	maxNameBytes    = 63
	maxMeterBytes   = 100 // Stripe's limit for a meter's event_name
	maxPriceIDBytes = 200 // Stripe's limit for a lookup key
	maxLabelRunes   = 100
	maxURLBytes     = 2048

	// maxIncluded leaves room to add two allowances in an int64.
	maxIncluded = int64(1) << 62
	// maxBillable bounds included + max of a quota that bills. Stripe refuses a meter event value
	// of more than 15 digits, and gives summaries as JSON doubles, exact to 2^53 only.
	maxBillable = int64(1_000_000_000_000_000) - 1

	maxRateLimit = int64(1_000_000_000)
	minWindow    = time.Second
	maxWindow    = 24 * time.Hour
	maxGrace     = 90 * 24 * time.Hour

	maxThreshold  = 1000 // percent
	maxThresholds = 20   // per quota

	maxPer        = int64(1_000_000_000)
	maxPriceWhole = 9  // digits before the point of a price
	maxPlaces     = 12 // of unit_amount_decimal
)

package plans

import "strings"

// The currencies that Stripe charges in, by the decimals of its API amounts
// (https://docs.stripe.com/currencies). ISK and UGX have no minor unit in life but two decimals in
// the API: 5 UGX are sent as 500.
const (
	zeroDecimal  = "bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf"
	threeDecimal = "bhd jod kwd omr tnd"
	twoDecimal   = "aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bmd bnd bob brl bsd bwp byn " +
		"bzd cad cdf chf cny cop crc cve czk dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gtq gyd hkd " +
		"hnl htg huf idr ils inr isk jmd kes kgs khr kyd kzt lak lbp lkr lrd lsl mad mdl mkd mmk mnt mop " +
		"mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd pab pen pgk php pkr pln qar ron rsd rub sar sbd " +
		"scr sek sgd shp sle sos srd std szl thb tjs top try ttd twd tzs uah ugx usd uyu uzs wst xcd xcg " +
		"yer zar zmw"
)

// CurrencyExponent returns how many decimals the minor unit of a currency, in lower case, has in Stripe's API.
func CurrencyExponent(code string) (exponent int32, known bool) {
	if len(code) != 3 || strings.Contains(code, " ") {
		return 0, false
	}
	switch {
	case hasWord(twoDecimal, code):
		return 2, true
	case hasWord(zeroDecimal, code):
		return 0, true
	case hasWord(threeDecimal, code):
		return 3, true
	}
	return 0, false
}

// hasWord looks for a three-letter word in a list of three-letter words with single spaces.
func hasWord(list, word string) bool {
	for i := 0; i+3 <= len(list); i += 4 {
		if list[i:i+3] == word {
			return true
		}
	}
	return false
}

package admin

// Remedies are title, rule and next step of each kind of finding.
func Remedies() map[string][3]string {
	all := map[string][3]string{}
	for kind, r := range remedies() {
		all[kind] = [3]string{r.Title, r.Rule, r.Next}
	}
	return all
}

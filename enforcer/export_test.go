package enforcer

// CellsEverywhere gives every counter cells from the start, down to the last units. Call it before Start.
func (e *Enforcer) CellsEverywhere() { e.cellRule = attack }

// WithCells gives the counter of a known account cells, as sampled calls of two cores would.
func (e *Enforcer) WithCells(account, feature string) {
	a, _ := e.accounts.Load(account)
	e.promote(a.at(e.features.Load().index(feature)).cur.Load())
}

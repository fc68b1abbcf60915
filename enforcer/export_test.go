package enforcer

// CellsEverywhere gives every counter cells from the start, down to the last units. Call it before Start.
func (e *Enforcer) CellsEverywhere() { e.cellRule = attack }

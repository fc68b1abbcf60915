package usage

// FlushArgs asks a worker to fold what lies in the inbox; the rows themselves are the work. It fits River's JobArgs.
type FlushArgs struct{}

// Kind names the job.
func (FlushArgs) Kind() string { return "flush" }

// RetireArgs asks a worker to retire nodes that have stopped or were recovered, and to prune what has served its time.
type RetireArgs struct{}

// Kind names the job.
func (RetireArgs) Kind() string { return "retire" }

// WarnArgs asks a worker to deliver warnings that are due; the rows themselves are the work.
type WarnArgs struct{}

// Kind names the job.
func (WarnArgs) Kind() string { return "warn" }

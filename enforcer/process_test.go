package enforcer_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirhq/weir/enforcer"
)

// nodeEnv makes the test binary a node: a process of its own with one enforcer, which a test starts and kills.
const nodeEnv = "WEIR_TEST_NODE"

func TestMain(m *testing.M) {
	if spec := os.Getenv(nodeEnv); spec != "" {
		if err := runNode(spec); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); os.Getenv("WEIR_CHAOS") == "" && checks.Value.String() == checks.DefValue {
		// Each check is a whole history on a real database; make chaos runs many.
		if err := checks.Value.Set("40"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// nodeSpec tells a node process what to do.
type nodeSpec struct {
	URL     string
	Dir     string
	Callers int
	Seed    uint64
	Most    int64         // calls ask for 1 to Most units
	Big     int64         // the first call of every caller asks for this many instead
	Think   time.Duration // between calls
	MaxWait time.Duration
	Cells   bool // every counter has them from the start
}

// The reasons as a record has them.
var reasons = []enforcer.Reason{enforcer.OK, enforcer.QuotaExceeded, enforcer.Unavailable, "other"}

const recordSize = 32

// machineTime is the machine's monotonic clock in nanoseconds, comparable over processes.
func machineTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// runNode is the node process: "ready" on stderr once started; a line on stdin names an account whose quota its
// callers then use up, each call a record on stdout; "done" on stderr; the end of stdin stops it.
func runNode(text string) error {
	var spec nodeSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, spec.URL)
	if err != nil {
		return err
	}
	e, err := enforcer.New(pool, &enforcer.Config{JournalDir: spec.Dir, MaxWait: spec.MaxWait, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if spec.Cells {
		e.CellsEverywhere()
	}
	for {
		startCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
		err = e.Start(startCtx)
		cancel()
		if err == nil {
			break
		}
		fmt.Fprintln(os.Stderr, "starting:", err)
		time.Sleep(100 * time.Millisecond) // a database that restarts
	}
	fmt.Fprintln(os.Stderr, "ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		useUp(ctx, e, in.Text(), spec)
		fmt.Fprintln(os.Stderr, "done")
	}
	stopCtx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return e.Stop(stopCtx)
}

// useUp calls with random amounts until one is refused, then with ones until that is refused too.
func useUp(ctx context.Context, e *enforcer.Enforcer, account string, spec nodeSpec) {
	var wg sync.WaitGroup
	for g := range spec.Callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(spec.Seed, uint64(g)))
			ones := spec.Most <= 1
			big := spec.Big
			for {
				n := max(1, big)
				if big == 0 && !ones {
					n += rng.Int64N(spec.Most)
				}
				began := machineTime()
				d, err := e.Consume(ctx, account, "events", n)
				reason := d.Reason
				if err != nil {
					reason = "other"
				}
				tell(call{time.Duration(began), time.Duration(machineTime()), n, reason})
				if reason == enforcer.QuotaExceeded && big == 0 {
					if ones {
						return
					}
					ones = true
				}
				big = 0
				if spec.Think > 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(2 * spec.Think))))
				}
			}
		})
	}
	wg.Wait()
}

// tell writes a record in one system call: once it returns, the caller has been answered, whatever happens to the
// process.
func tell(c call) {
	var b [recordSize]byte
	binary.LittleEndian.PutUint64(b[0:], uint64(c.began))
	binary.LittleEndian.PutUint64(b[8:], uint64(c.ended))
	binary.LittleEndian.PutUint64(b[16:], uint64(c.units))
	for i, r := range reasons {
		if r == c.decision {
			binary.LittleEndian.PutUint64(b[24:], uint64(i))
		}
	}
	if _, err := os.Stdout.Write(b[:]); err != nil {
		os.Exit(3)
	}
}

// process is a running node process, as its test sees it.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // of stderr
	told   chan struct{}
	reader sync.WaitGroup
	book   *book
}

// book gathers the records of all processes of a test.
type book struct {
	mu  sync.Mutex
	log []call
}

func (b *book) take() []call {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.log
	b.log = nil
	return all
}

func startProcess(t *testing.T, b *book, spec nodeSpec) *process {
	t.Helper()
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	p := &process{cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000), told: make(chan struct{}), book: b}
	p.cmd.Env = append(os.Environ(), nodeEnv+"="+string(text), "GOMAXPROCS=2")
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	errs, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.reader.Go(func() { p.read(out) })
	p.reader.Go(func() {
		defer close(p.lines)
		for s := bufio.NewScanner(errs); s.Scan(); {
			select {
			case p.lines <- s.Text():
			default: // the test has seen enough
			}
		}
	})
	t.Cleanup(p.kill)
	return p
}

func (p *process) read(out io.Reader) {
	in := bufio.NewReaderSize(out, 1<<16)
	var b [recordSize]byte
	for first := true; ; first = false {
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return
		}
		if first {
			close(p.told)
		}
		c := call{
			began: time.Duration(binary.LittleEndian.Uint64(b[0:])), ended: time.Duration(binary.LittleEndian.Uint64(b[8:])),
			units: int64(binary.LittleEndian.Uint64(b[16:])), decision: reasons[binary.LittleEndian.Uint64(b[24:])],
		}
		p.book.mu.Lock()
		p.book.log = append(p.book.log, c)
		p.book.mu.Unlock()
	}
}

// await reads the process's lines until one that is word.
func (p *process) await(word string, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	var said []string
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return fmt.Errorf("the process ended before it said %q: %s", word, strings.Join(said, "; "))
			}
			if line == word {
				return nil
			}
			said = append(said, line)
		case <-timer.C:
			return fmt.Errorf("the process did not say %q within %s: %s", word, most, strings.Join(said, "; "))
		}
	}
}

func (p *process) use(account string) error {
	_, err := fmt.Fprintln(p.in, account)
	return err
}

// kill ends the process as kill -9 does, and waits until everything that it told has been read.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	p.reader.Wait()
	_ = p.cmd.Wait()
}

// stop ends the process cleanly.
func (p *process) stop() error {
	_ = p.in.Close()
	p.reader.Wait()
	err := p.cmd.Wait()
	if err != nil {
		var said []string
		for line := range p.lines {
			said = append(said, line)
		}
		err = fmt.Errorf("%w: %s", err, strings.Join(said, "\n")) // what the race detector found
	}
	return err
}

package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"
)

// child is one of the product's processes.
type child struct {
	name string
	cmd  *exec.Cmd
	log  string
	url  string // that it serves on
	done chan struct{}
	end  sync.Once
}

// asking returns the client of single questions.
func asking() *http.Client { return &http.Client{Timeout: 10 * time.Second} }

// serves finds the address in the line that every server prints once it listens.
var serves = regexp.MustCompile(`http://[0-9.]+:[0-9]+`)

// runChild runs a program to its end.
func runChild(ctx context.Context, binary string, args, env []string) error {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", binary, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// startChild starts a server and waits for the line that tells its address.
func startChild(ctx context.Context, name, binary string, args, env []string, log string) (*child, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	r, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &child{name: name, log: log, done: make(chan struct{})}
	c.cmd = exec.Command(binary, args...)
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stdout, c.cmd.Stderr = out, out
	dieWithParent(c.cmd)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	_ = out.Close()
	found := make(chan string, 1)
	go func() {
		defer func() { _ = file.Close() }()
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadString('\n')
			_, _ = file.WriteString(line)
			if url := serves.FindString(line); url != "" {
				select {
				case found <- url:
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = c.cmd.Wait()
		close(c.done)
	}()
	wait, cancel := context.WithTimeout(ctx, stepBudget)
	defer cancel()
	select {
	case c.url = <-found:
		return c, nil
	case <-c.done:
		return nil, fmt.Errorf("%s ended before it served%s", name, c.tail())
	case <-wait.Done():
		c.stop()
		return nil, fmt.Errorf("%s serves nothing: %w%s", name, wait.Err(), c.tail())
	}
}

// ready waits until the process answers its readiness check.
func (c *child) ready(ctx context.Context) error {
	return until(ctx, func() (bool, error) {
		select {
		case <-c.done:
			return false, errors.New(c.name + " has ended")
		default:
		}
		resp, err := asking().Get(c.url + "/readyz")
		if err != nil {
			return false, nil // not yet
		}
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
		return resp.StatusCode == http.StatusOK, nil
	})
}

// businessTime asks the worker what time it takes it to be.
func (c *child) businessTime(ctx context.Context) (time.Time, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/readyz", nil)
	if err != nil {
		return time.Time{}, err
	}
	resp, err := asking().Do(req)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Time time.Time `json:"time"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&answer); err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", req.URL, err)
	}
	return answer.Time, nil
}

// stop ends the process as a service manager does, and kills it when that takes too long.
func (c *child) stop() {
	c.end.Do(func() {
		_ = c.cmd.Process.Signal(os.Interrupt)
		select {
		case <-c.done:
		case <-time.After(15 * time.Second):
			_ = c.cmd.Process.Kill()
			<-c.done
		}
	})
}

// tail quotes the last lines of the process's log.
func (c *child) tail() string {
	data, err := os.ReadFile(c.log)
	if err != nil || len(data) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	lines = lines[max(0, len(lines)-8):]
	return "\n\n" + c.name + " said last:\n  " + strings.Join(lines, "\n  ")
}

// until asks again and again until yes, an error, or the step's time is up.
func until(ctx context.Context, yes func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, stepBudget)
	defer cancel()
	t := time.NewTicker(25 * time.Millisecond)
	defer t.Stop()
	for {
		ok, err := yes()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %s in vain: %w", stepBudget, ctx.Err())
		case <-t.C:
		}
	}
}

// Package deploy_test reads every deployment file and compares what it names with what the programs know.
package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/api"
	"github.com/weirhq/weir/internal/metrics"
	"github.com/weirhq/weir/jobs"
	"github.com/weirhq/weir/usage"
)

// documents reads all YAML documents of a file.
func documents(t *testing.T, file string) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var all []map[string]any
	for {
		var one map[string]any
		err := dec.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, file)
		all = append(all, one)
	}
}

func files(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(path, s) }) {
			all = append(all, path)
		}
		return err
	}))
	require.NotEmpty(t, all)
	return all
}

func TestEachFileParses(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, ".yaml") {
		require.NotEmpty(t, documents(t, file), file)
	}
	for _, file := range files(t, ".json") {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, json.Valid(data), file)
	}
}

var variable = regexp.MustCompile(`\b(WEIR_[A-Z_]+|STRIPE_[A-Z_]+|DATABASE_URL(?:_FILE)?)\b`)

// A variable that no program reads would be set in vain.
func TestEachVariableIsReadByAProgram(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, dir := range []string{"../cmd/worker", "../cmd/enforcer"} {
		sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, sources)
		for _, source := range sources {
			data, err := os.ReadFile(source)
			require.NoError(t, err)
			for _, name := range variable.FindAllString(string(data), -1) {
				known[name] = true
			}
		}
	}
	for _, file := range files(t, ".yaml", ".service", "Dockerfile") {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range variable.FindAllString(string(data), -1) {
			require.True(t, known[name], "%s names %s, which no program reads", file, name)
		}
	}
}

// published are the metrics that the programs show at /metrics, by name, with their kind and the names of their labels.
// Each page is made by the code that the program itself makes it with.
func published(t *testing.T) map[string][]string {
	t.Helper()
	kind := regexp.MustCompile(`(?m)^# TYPE (weir_\S+) (\S+)$`)
	sample := regexp.MustCompile(`(?m)^(weir_[a-z_]+)(?:\{(.*)\})? \S+$`)
	shown := map[string][]string{}
	for _, page := range []string{sidecarPage(t), workerPage(t)} {
		for _, m := range kind.FindAllStringSubmatch(page, -1) {
			shown[m[1]] = append(shown[m[1]], m[2])
		}
		for _, m := range sample.FindAllStringSubmatch(page, -1) {
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				name := strings.TrimSuffix(m[1], "_bucket")
				shown[name] = append(shown[name], l[1])
			}
		}
	}
	return shown
}

func get(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Body.String()
}

// sidecarPage is what a sidecar shows that has answered a call.
func sidecarPage(t *testing.T) string {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none") // connects at the first use, which there is none of
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	e, err := enforcer.New(pool, &enforcer.Config{NoJournal: true})
	require.NoError(t, err)
	sidecar, err := api.New(api.Config{Enforcer: e, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	get(t, sidecar, "/healthz")
	return get(t, sidecar, "/metrics")
}

// workerPage is what a worker shows that has answered a call and found something of each kind.
func workerPage(t *testing.T) string {
	t.Helper()
	page, err := metrics.NewHTTP(metrics.New(func(context.Context) (metrics.State, error) {
		return metrics.State{
			Usage:   usage.Health{Overshoots: map[string]int64{"x": 1}},
			Billing: books.Health{AtRisk: 1, Findings: map[string]int64{"x": 1}},
			Jobs:    []jobs.Load{{Kind: "x", State: "available"}},
		}, nil
	}, slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	get(t, page.Measured("route", http.NotFoundHandler()), "/")
	return get(t, page.Page(), "/metrics")
}

var (
	metric   = regexp.MustCompile(`\bweir_[a-z_]+`)
	selector = regexp.MustCompile(`\b(weir_[a-z_]+)\{([^}]*)\}`)
	label    = regexp.MustCompile(`\b([a-z_]+)\s*(?:=|!=|=~|!~)`)
	counted  = regexp.MustCompile(`\b(?:rate|increase)\((weir_[a-z_]+)`)
	by       = regexp.MustCompile(`\bby \(([a-z_, ]+)\)`)
)

// requireKnown holds an expression against what the programs show: its metrics, the labels that it selects or groups by,
// and that what it takes a rate of only goes up.
func requireKnown(t *testing.T, shown map[string][]string, where, expr string) {
	t.Helper()
	found := metric.FindAllString(expr, -1)
	require.NotEmpty(t, found, where)
	var labels []string
	for _, name := range found {
		of, ok := shown[strings.TrimSuffix(name, "_bucket")]
		require.True(t, ok, "%s: no program has the metric %s", where, name)
		labels = append(labels, of...)
	}
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		for _, l := range label.FindAllStringSubmatch(s[2], -1) {
			require.Contains(t, shown[s[1]], l[1], "%s: %s has no such label", where, s[1])
		}
	}
	for _, group := range by.FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.Split(group[1], ", ") {
			require.True(t, l == "le" || slices.Contains(labels, l), "%s: nothing in %q has the label %s", where, expr, l)
		}
	}
	for _, c := range counted.FindAllStringSubmatch(expr, -1) {
		name := strings.TrimSuffix(c[1], "_bucket")
		require.True(t, slices.Contains(shown[name], "counter") || slices.Contains(shown[name], "histogram"), "%s: %s is no counter", where, name)
	}
}

func TestAlertsAreAboutMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := published(t)
	operations, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	rules := documents(t, "prometheus/weir.rules.yaml")
	require.Len(t, rules, 1)
	n := 0
	for _, g := range rules[0]["groups"].([]any) {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			rule := r.(map[string]any)
			name, expr := rule["alert"].(string), rule["expr"].(string)
			require.Contains(t, expr, "weir_", name)
			requireKnown(t, known, name, expr)
			if text, ok := rule["for"].(string); ok {
				_, err := time.ParseDuration(text)
				require.NoError(t, err, name)
			}
			require.Contains(t, []any{"page", "ticket"}, rule["labels"].(map[string]any)["severity"], name)
			notes := rule["annotations"].(map[string]any)
			require.NotEmpty(t, notes["summary"], name)
			require.NotEmpty(t, notes["description"], name)
			require.Contains(t, string(operations), name, "docs/operations.md does not say what to do about it")
			n++
		}
	}
	require.Greater(t, n, 20)
}

func TestTheDashboardShowsMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := published(t)
	data, err := os.ReadFile("grafana/weir.json")
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(data, &board))
	for _, p := range board.Panels {
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.Contains(t, target.Expr, "weir_", p.Title)
			requireKnown(t, known, p.Title, target.Expr)
		}
	}
}

// pod is what is looked at in a pod's template.
type pod struct {
	Grace      int                     `yaml:"terminationGracePeriodSeconds"`
	Init       []container             `yaml:"initContainers"`
	Containers []container             `yaml:"containers"`
	Volumes    []struct{ Name string } `yaml:"volumes"`
}

type container struct {
	Name      string
	Env       []struct{ Name, Value string }
	Mounts    []struct{ Name, MountPath string } `yaml:"volumeMounts"`
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
}

// A stop may take the pause before it and two stop timeouts; a pod that is killed earlier leaves work to recovery.
func TestPodsHaveTimeToStopAndAPlaceForTheJournal(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, file := range []string{"kubernetes/worker.yaml", "kubernetes/enforcer.yaml", "kubernetes/sidecar.yaml"} {
		for _, doc := range documents(t, file) {
			if doc["kind"] != "Deployment" && doc["kind"] != "StatefulSet" {
				continue
			}
			data, err := yaml.Marshal(doc["spec"].(map[string]any)["template"].(map[string]any)["spec"])
			require.NoError(t, err)
			var p pod
			require.NoError(t, yaml.Unmarshal(data, &p))
			for _, c := range slices.Concat(p.Init, p.Containers) {
				seen += checkContainer(t, file, &p, &c)
			}
		}
	}
	require.Equal(t, 3, seen)
}

func checkContainer(t *testing.T, file string, p *pod, c *container) int {
	t.Helper()
	checked := 0
	for _, e := range c.Env {
		switch e.Name {
		case "WEIR_STOP_TIMEOUT":
			d, err := time.ParseDuration(e.Value)
			require.NoError(t, err)
			require.Greater(t, time.Duration(p.Grace)*time.Second, 2*d+time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second, "%s: %s", file, c.Name)
			checked++
		case "WEIR_JOURNAL_DIR":
			require.True(t, slices.ContainsFunc(c.Mounts, func(m struct{ Name, MountPath string }) bool {
				return m.Name == "journal" && strings.HasPrefix(e.Value, m.MountPath)
			}), "%s: the journal of %s lies in the container's own layer", file, c.Name)
		}
	}
	return checked
}

func TestUnitsHaveTimeToStop(t *testing.T) {
	t.Parallel()
	limit := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`)
	asked := regexp.MustCompile(`WEIR_STOP_TIMEOUT=(\w+)`)
	for _, file := range files(t, ".service") {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		most, each := limit.FindSubmatch(data), asked.FindSubmatch(data)
		require.NotNil(t, most, file)
		require.NotNil(t, each, file)
		d, err := time.ParseDuration(string(each[1]))
		require.NoError(t, err)
		all, err := time.ParseDuration(string(most[1]) + "s")
		require.NoError(t, err)
		require.Greater(t, all, 2*d, file)
	}
}

package edge_test

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// Each manifest is read into Kubernetes' own types, and a field that they do not have is an error, as at the server.
func TestManifestsHaveOnlyFieldsOfKubernetes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../deploy/kubernetes/*.yaml")
	require.NoError(t, err)
	seen := map[string]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, doc := range bytes.Split(data, []byte("\n---\n")) {
			var kind struct{ APIVersion, Kind string }
			require.NoError(t, yaml.Unmarshal(doc, &kind))
			into, ok := map[string]any{
				"apps/v1 Deployment": &apps.Deployment{}, "apps/v1 StatefulSet": &apps.StatefulSet{}, "batch/v1 Job": &batch.Job{},
				"v1 Service": &core.Service{}, "policy/v1 PodDisruptionBudget": &policy.PodDisruptionBudget{},
			}[kind.APIVersion+" "+kind.Kind]
			require.True(t, ok, "%s: %+v", file, kind)
			require.NoError(t, yaml.UnmarshalStrict(doc, into), "%s: %s", file, kind.Kind)
			seen[kind.Kind]++
			switch x := into.(type) {
			case *apps.Deployment:
				probed(t, file, x.Spec.Template.Spec)
			case *apps.StatefulSet:
				probed(t, file, x.Spec.Template.Spec)
				require.NotEmpty(t, x.Spec.VolumeClaimTemplates, "the journal outlives the pod")
			}
		}
	}
	require.Equal(t, map[string]int{"Deployment": 2, "StatefulSet": 1, "Job": 1, "Service": 2, "PodDisruptionBudget": 2}, seen)
}

// probed checks what a pod of ours needs: probes of the right routes, nobody's rights, a file system that is only read.
func probed(t *testing.T, file string, pod core.PodSpec) {
	t.Helper()
	require.True(t, *pod.SecurityContext.RunAsNonRoot, file)
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		if !strings.HasPrefix(c.Image, "weir:") {
			continue
		}
		s := c.SecurityContext
		require.True(t, !*s.AllowPrivilegeEscalation && *s.ReadOnlyRootFilesystem, "%s: %s", file, c.Name)
		require.Equal(t, []core.Capability{"ALL"}, s.Capabilities.Drop)
		if len(c.Ports) == 0 { // on a socket, which a kubelet does not reach
			continue
		}
		require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
		require.Equal(t, "/healthz", c.StartupProbe.HTTPGet.Path)
		require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
	}
}

// The compose file is one by Compose's own reader and schema, with every variable that it asks for set.
func TestTheComposeFileIsOne(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../deploy/docker/compose.yaml")
	require.NoError(t, err)
	env := types.Mapping{}
	for _, m := range regexp.MustCompile(`\$\{([A-Z_]+):\?`).FindAllStringSubmatch(string(data), -1) {
		env[m[1]] = "x"
	}
	require.Len(t, env, 6)
	load := func(env types.Mapping) (*types.Project, error) {
		return loader.LoadWithContext(context.Background(), types.ConfigDetails{
			WorkingDir: "../deploy/docker", Environment: env, ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: data}},
		}, func(o *loader.Options) { o.SetProjectName("weir", true) })
	}
	project, err := load(env)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"postgres", "migrate", "worker", "enforcer"}, project.ServiceNames())
	for _, name := range []string{"worker", "enforcer"} {
		s := project.Services[name]
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, []string(s.CapDrop))
		require.Contains(t, s.DependsOn, "migrate")
	}
	delete(env, "POSTGRES_PASSWORD")
	_, err = load(env)
	require.ErrorContains(t, err, "POSTGRES_PASSWORD", "one that is missing is asked for")
}

// The Dockerfile's own build makes programs that need no library and no loader, as an image without either has it.
func TestTheImagesProgramsAreStatic(t *testing.T) {
	t.Parallel()
	dir := build(t)
	for _, name := range []string{"worker", "enforcer"} {
		f, err := elf.Open(filepath.Join(dir, name))
		require.NoError(t, err)
		libraries, err := f.ImportedLibraries()
		require.NoError(t, err)
		require.Empty(t, libraries)
		for _, p := range f.Progs {
			require.NotEqual(t, elf.PT_INTERP, p.Type, "%s asks for a loader", name)
		}
		require.NoError(t, f.Close())
	}
}

// build runs the Dockerfile's build line.
func build(t *testing.T) string {
	t.Helper()
	file, err := os.ReadFile("../deploy/docker/Dockerfile")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*-o /out/ .*?) \\$`).FindSubmatch(file)
	require.NotNil(t, line, "the Dockerfile has no line that builds")
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(string(line[1]), "/out/", "'"+dir+"/'", 1))
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// systemd finds nothing wrong with the units, once the programs are where they point to.
func TestTheUnitsAreTakenBySystemd(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob("../deploy/systemd/*.service")
	require.NoError(t, err)
	require.Len(t, units, 2)
	dir := t.TempDir()
	for _, name := range []string{"worker", "enforcer"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	args := []string{"verify", "--man=no", "--recursive-errors=no"}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		require.NoError(t, err)
		copied := filepath.Join(dir, filepath.Base(unit))
		require.NoError(t, os.WriteFile(copied, bytes.ReplaceAll(text, []byte("/usr/local/bin/"), []byte(dir+"/")), 0o644))
		args = append(args, copied)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
	require.NoError(t, err, "%s (systemd-analyze is in Debian's package systemd)", out)
	require.Empty(t, strings.TrimSpace(string(out)))
}

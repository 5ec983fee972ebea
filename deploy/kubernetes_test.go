package deploy_test

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write kubernetes/central.yaml from the chart")

const chartDir = "helm/thoughtgate"

// render returns the manifests that the chart makes of values.
func render(t *testing.T, values string) string {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "thoughtgate", Namespace: "default", IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".txt") && strings.TrimSpace(files[name]) != "" {
			text.WriteString("---\n" + strings.TrimSpace(files[name]) + "\n")
		}
	}
	return text.String()
}

// TestChart renders the chart in several ways, and checks what comes of it.
func TestChart(t *testing.T) {
	for name, values := range map[string]string{
		"as it is":    "",
		"one":         "replicas: 1\npersistence: {enabled: true, storageClass: fast}\npodDisruptionBudget: {enabled: false}\n",
		"monitored":   "serviceMonitor: {enabled: true, labels: {team: a}}\nprometheusRule: {enabled: true}\n",
		"closed":      "networkPolicy: {agents: [], operators: [], monitoring: []}\nconfig: {allowed_hosts: [catalog.example.com]}\n",
		"policies":    "policies: {a.cedar: 'permit(principal, action, resource);'}\nconfig: {cedar: {policies: [policies/*.cedar]}, default: policy}\n",
		"placed":      "nodeSelector: {a: b}\ntolerations: [{key: a, operator: Exists}]\npodAnnotations: {a: b}\nimagePullSecrets: [{name: a}]\nimage: {tag: v9}\n",
		"no network":  "networkPolicy: {enabled: false}\nservice: {type: LoadBalancer}\n",
		"outside":     "ingress: {className: nginx, agents: {host: mcp.example.com, annotations: {a: b}}, operators: {host: inbox.example.com, tlsSecret: inbox}}\nconfig: {allowed_hosts: [mcp.internal]}\n",
		"account":     "serviceAccount: {create: true, annotations: {a: b}}\nextraEnv: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}]\n",
		"own account": "serviceAccount: {name: gate}\n",
	} {
		t.Run(name, func(t *testing.T) { checkManifests(t, render(t, values)) })
	}
}

// TestChartIsClosed demands that only agents of the same namespace can connect, with a token.
func TestChartIsClosed(t *testing.T) {
	text := render(t, "")
	if strings.Contains(text, "anonymous") || strings.Contains(text, "port: agents }]\n      from:\n        - namespaceSelector") || !strings.Contains(text, "- podSelector: {}") {
		t.Errorf("anonymous agents, or those of other namespaces, may connect:\n%s", text)
	}
	if outside := render(t, "ingress: {agents: {host: mcp.example.com}, operators: {host: inbox.example.com}}"); !strings.Contains(outside, "url: https://inbox.example.com") || !strings.Contains(outside, "- mcp.example.com") {
		t.Errorf("the gate does not know its names outside:\n%s", outside)
	}
}

// TestChartRefuses a setting that would lose held calls.
func TestChartRefuses(t *testing.T) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	values := chartutil.Values{"replicas": 2, "persistence": map[string]any{"enabled": true}}
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Render(chart, all); err == nil || !strings.Contains(err.Error(), "replicas: 1") {
		t.Errorf("two replicas with one file: %v", err)
	}
}

// TestManifests checks the plain manifests. The central gate is what the chart
// makes.
func TestManifests(t *testing.T) {
	const central = "kubernetes/central.yaml"
	want := "# A central gate with replicas on PostgreSQL. Made from the Helm chart by\n# go test . -run TestManifests -update; needs the Secret of secret.example.yaml.\n" + render(t, "")
	if *update {
		if err := os.WriteFile(central, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{central, "kubernetes/sidecar.yaml", "kubernetes/secret.example.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if file == central && string(text) != want {
			t.Errorf("%s is out of date; run go test . -run TestManifests -update", central)
		}
		checkManifests(t, string(text))
	}
}

// TestChartHasTheAlerts demands that the chart's copy is the same.
func TestChartHasTheAlerts(t *testing.T) {
	one, err := os.ReadFile("prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(chartDir + "/alerts.yml")
	if err != nil || !bytes.Equal(one, other) {
		t.Errorf("copy prometheus/alerts.yml to %s (%v)", chartDir, err)
	}
}

// manifests are the objects that are applied together.
type manifests struct {
	deployments []apps.Deployment
	configs     []core.ConfigMap
	services    []core.Service
	budgets     []policy.PodDisruptionBudget
	networks    []networking.NetworkPolicy
	monitors    []monitoring.ServiceMonitor
	ingresses   []networking.Ingress
	accounts    []core.ServiceAccount
}

var comment = regexp.MustCompile(`(?m)^#.*$`)

// checkManifests reads manifests strictly, as the types of Kubernetes have them,
// and checks that they belong together.
func checkManifests(t *testing.T, text string) {
	t.Helper()
	var all manifests
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		if strings.TrimSpace(comment.ReplaceAllString(part, "")) != "" {
			all.read(t, []byte(part))
		}
	}
	for _, c := range all.configs {
		checkConfig(t, c)
	}
	for _, d := range all.deployments {
		checkDeployment(t, d, all.configs)
		for _, s := range all.services {
			selects(t, s.Name, s.Spec.Selector, d)
			for _, p := range s.Spec.Ports {
				if !hasPort(d, p.TargetPort.String()) {
					t.Errorf("%s: no container has the port %s", s.Name, p.TargetPort.String())
				}
			}
		}
		for _, b := range all.budgets {
			selects(t, b.Name, b.Spec.Selector.MatchLabels, d)
		}
		for _, n := range all.networks {
			selects(t, n.Name, n.Spec.PodSelector.MatchLabels, d)
		}
	}
	for _, i := range all.ingresses {
		checkIngress(t, i, all.services)
	}
	for _, a := range all.accounts {
		if !slices.ContainsFunc(all.deployments, func(d apps.Deployment) bool { return d.Spec.Template.Spec.ServiceAccountName == a.Name }) {
			t.Errorf("no pod has the service account %s", a.Name)
		}
	}
	for _, m := range all.monitors {
		if !slices.ContainsFunc(all.services, func(s core.Service) bool { return within(m.Spec.Selector.MatchLabels, s.Labels) }) {
			t.Errorf("%s selects no service", m.Name)
		}
	}
}

// checkIngress demands that an ingress leads to a port of a service.
func checkIngress(t *testing.T, i networking.Ingress, services []core.Service) {
	t.Helper()
	to := i.Spec.Rules[0].HTTP.Paths[0].Backend.Service
	if !slices.ContainsFunc(services, func(s core.Service) bool {
		return s.Name == to.Name && slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == to.Port.Name })
	}) {
		t.Errorf("%s leads to no service: %v", i.Name, to)
	}
}

// read adds an object.
func (m *manifests) read(t *testing.T, text []byte) {
	t.Helper()
	var kind meta.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		add(t, &m.deployments, text)
	case "v1 ConfigMap":
		add(t, &m.configs, text)
	case "v1 Service":
		add(t, &m.services, text)
	case "policy/v1 PodDisruptionBudget":
		add(t, &m.budgets, text)
	case "networking.k8s.io/v1 NetworkPolicy":
		add(t, &m.networks, text)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		add(t, &m.monitors, text)
	case "monitoring.coreos.com/v1 PrometheusRule":
		add(t, new([]monitoring.PrometheusRule), text)
	case "networking.k8s.io/v1 Ingress":
		add(t, &m.ingresses, text)
	case "v1 ServiceAccount":
		add(t, &m.accounts, text)
	case "v1 PersistentVolumeClaim":
		add(t, new([]core.PersistentVolumeClaim), text)
	case "v1 Secret":
		add(t, new([]core.Secret), text)
	default:
		t.Errorf("an object of kind %q in\n%s", kind, text)
	}
}

func add[T any](t *testing.T, to *[]T, text []byte) {
	t.Helper()
	var object T
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
	*to = append(*to, object)
}

// checkConfig has the program itself check a configuration.
func checkConfig(t *testing.T, c core.ConfigMap) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range c.Data {
		file := filepath.Join(dir, name)
		if strings.HasSuffix(name, ".cedar") {
			file = filepath.Join(dir, "policies", name)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program(t), "check", "-c", filepath.Join(dir, "thoughtgate.yaml"))
	cmd.Env = append(os.Environ(), "AGENT_TOKEN_HASH=sha256:"+strings.Repeat("0", 64)) // of the Secret
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func checkDeployment(t *testing.T, d apps.Deployment, configs []core.ConfigMap) {
	t.Helper()
	pod := d.Spec.Template.Spec
	selects(t, d.Name, d.Spec.Selector.MatchLabels, d)
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil {
		t.Errorf("%s may run as root", d.Name)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("%s gets a token of the cluster", d.Name)
	}
	for _, c := range pod.Containers {
		checkContainer(t, c)
	}
	i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.ConfigMap != nil })
	if i < 0 || !slices.ContainsFunc(configs, func(c core.ConfigMap) bool { return c.Name == pod.Volumes[i].ConfigMap.Name }) {
		t.Errorf("%s mounts no configuration of these manifests", d.Name)
	}
	if pod.TerminationGracePeriodSeconds == nil || *pod.TerminationGracePeriodSeconds < 35 {
		t.Errorf("%s is killed before it has drained", d.Name)
	}
	if *d.Spec.Replicas == 1 && d.Spec.Strategy.Type != apps.RecreateDeploymentStrategyType {
		t.Errorf("%s starts a second gate on one file", d.Name)
	}
}

func checkContainer(t *testing.T, c core.Container) {
	t.Helper()
	s := c.SecurityContext
	if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil {
		t.Errorf("%s is not locked down", c.Name)
	}
	if c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("%s has no requests or limits", c.Name)
	}
	if c.Name != "thoughtgate" {
		return
	}
	if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.StartupProbe == nil {
		t.Errorf("%s lacks a probe", c.Name)
	}
	for _, m := range c.VolumeMounts {
		if m.SubPath != "" {
			t.Errorf("%s: a file that is mounted by itself does not change with the ConfigMap", m.MountPath)
		}
	}
	if len(c.EnvFrom) == 0 || c.EnvFrom[0].SecretRef == nil {
		t.Errorf("%s gets no secrets", c.Name)
	}
}

// selects demands that a selector is not empty and matches the pods of d.
func selects(t *testing.T, name string, selector map[string]string, d apps.Deployment) {
	t.Helper()
	if len(selector) == 0 || !within(selector, d.Spec.Template.Labels) {
		t.Errorf("%s does not select the pods of %s", name, d.Name)
	}
}

func within(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return true
}

func hasPort(d apps.Deployment, name string) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c core.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == name })
	})
}

// Package archtest holds the architecture as a test: which package may import
// which. It has no code of its own.
package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/thoughtgate/thoughtgate-go/"

// allowed lists, for each package, which packages of this module its product
// code may import. A package that is not listed may not exist. Read it as the
// architecture: every line may use only what stands above it.
var allowed = map[string]string{
	"jsonrpc":                       "",
	"internal/pause":                "",
	"task":                          "internal/pause",
	"task/memstore":                 "task",
	"task/internal/sqlcore":         "task",
	"task/sqlitestore":              "task task/internal/sqlcore",
	"task/pgstore":                  "task task/internal/sqlcore internal/pause",
	"task/redisstore":               "task internal/pause",
	"task/sealedstore":              "task",
	"task/steadystore":              "task internal/pause",
	"task/storetest":                "task internal/grantstore",
	"task/internal/sqltest":         "task task/storetest task/internal/sqlcore",
	"internal/plain":                "",
	"internal/logging":              "internal/plain",
	"mcptask":                       "jsonrpc task internal/plain",
	"internal/version":              "",
	"internal/config":               "",
	"docs":                          "",
	"docs/picture":                  "",
	"internal/doctest":              "",
	"internal/clientconfig":         "",
	"internal/audit":                "task internal/plain",
	"internal/admission":            "",
	"internal/deadline":             "",
	"internal/ownstack":             "",
	"internal/localuser":            "",
	"internal/filelock":             "",
	"internal/testenv":              "",
	"internal/testenv/spans":        "",
	"internal/testenv/pipeserver":   "jsonrpc",
	"internal/netfault":             "",
	"internal/metrics":              "",
	"internal/tracing":              "internal/pause",
	"internal/wire":                 "jsonrpc mcptask",
	"internal/policy":               "jsonrpc",
	"internal/gate":                 "jsonrpc internal/logging internal/metrics internal/policy",
	"internal/grantstore":           "task",
	"internal/precedent":            "task",
	"internal/casefile":             "jsonrpc task internal/audit internal/grantstore internal/policy internal/plain internal/precedent",
	"internal/approval":             "jsonrpc task mcptask internal/casefile internal/policy internal/logging internal/plain internal/ownstack internal/grantstore internal/precedent internal/pause",
	"internal/bearer":               "",
	"internal/highlight":            "",
	"internal/identity":             "internal/admission internal/bearer internal/logging internal/policy",
	"internal/keyring":              "task",
	"internal/operator":             "internal/admission internal/bearer internal/keyring internal/logging task",
	"internal/approval/api":         "internal/approval internal/casefile internal/audit internal/channel internal/channel/webhook internal/operator internal/plain task internal/grantstore",
	"internal/channel":              "internal/casefile internal/plain task internal/pause",
	"internal/channel/slack":        "internal/approval internal/casefile internal/channel task internal/pause",
	"internal/channel/email":        "internal/casefile internal/channel internal/plain",
	"internal/channel/push":         "internal/channel internal/channel/webhook internal/operator internal/plain task",
	"internal/channel/pushtest":     "",
	"internal/channel/slacktest":    "",
	"internal/channel/webhook":      "internal/casefile internal/channel internal/plain task",
	"internal/approval/client":      "internal/approval internal/casefile internal/audit task internal/grantstore internal/pause",
	"internal/inbox":                "internal/approval internal/casefile internal/channel internal/channel/push internal/approval/api internal/audit internal/highlight internal/operator internal/plain task internal/grantstore",
	"internal/upstream":             "jsonrpc task mcptask internal/approval internal/gate internal/policy internal/wire internal/metrics internal/tracing",
	"internal/upstream/http1":       "internal/deadline internal/ownstack",
	"internal/upstream/httpclient":  "internal/upstream/http1 jsonrpc task internal/admission internal/approval internal/policy internal/upstream internal/wire internal/metrics internal/tracing",
	"internal/upstream/stdioclient": "jsonrpc internal/upstream internal/wire internal/metrics internal/tracing",
	"internal/upstream/bridge":      "jsonrpc task internal/admission internal/logging internal/plain internal/upstream internal/upstream/httpclient internal/upstream/stdioclient internal/wire",
	"internal/upstream/httplink":    "jsonrpc internal/upstream internal/upstream/httpclient internal/wire",
	"internal/conversation":         "jsonrpc task mcptask internal/approval internal/gate internal/keyring internal/policy internal/wire internal/metrics internal/tracing internal/admission internal/logging internal/plain internal/upstream internal/ownstack",
	"internal/mcphttp":              "jsonrpc task internal/conversation internal/gate internal/identity internal/localuser internal/wire internal/metrics internal/tracing internal/admission internal/logging internal/upstream internal/upstream/httpclient internal/ownstack",
	"internal/mcpstdio":             "jsonrpc internal/conversation internal/gate internal/policy internal/wire internal/metrics internal/tracing internal/admission internal/logging internal/plain internal/upstream",
	"internal/storage":              "task task/memstore task/redisstore task/sqlitestore task/pgstore task/sealedstore task/steadystore internal/precedent",
	"internal/localdesk":            "internal/bearer internal/filelock internal/localuser internal/logging",
	"internal/demo":                 "jsonrpc",
	"internal/listener":             "internal/admission internal/deadline internal/logging internal/wire",
	"internal/app":                  "jsonrpc task mcptask internal/conversation internal/storage internal/approval internal/approval/api internal/channel internal/channel/email internal/channel/push internal/channel/slack internal/channel/webhook internal/bearer internal/config internal/filelock internal/gate internal/identity internal/inbox internal/keyring internal/logging internal/policy internal/mcphttp internal/upstream internal/upstream/httpclient internal/metrics internal/operator internal/tracing internal/admission internal/listener internal/wire internal/mcpstdio internal/upstream/stdioclient internal/upstream/bridge internal/upstream/httplink internal/localdesk internal/version internal/grantstore",
	"cmd/thoughtgate":               "docs task internal/app internal/approval internal/casefile internal/approval/client internal/audit internal/bearer internal/clientconfig internal/config internal/demo internal/gate internal/keyring internal/logging internal/plain internal/policy internal/storage task/sealedstore internal/localdesk internal/version",
	"e2e":                           "",
	"e2e/browser":                   "",
	"e2e/clients":                   "",
	"e2e/wrap":                      "",
	"e2e/crash":                     "",
	"internal/npm":                  "",
	"e2e/hosts/model":               "",
	"e2e/hosts":                     "e2e/hosts/model internal/demo internal/npm",
	"conformance/suite":             "internal/npm",
	"conformance":                   "conformance/suite",
	"packaging":                     "",
	"packaging/npm":                 "",
	"packaging/sbom":                "",
	"examples/webhook":              "",
	"internal/mutation":             "",
	"internal/archtest/measure":     "",
	"bench/workload":                "",
	"bench/load":                    "bench/workload",
	"bench/peer":                    "bench/workload",
	"bench/proc":                    "",
	"bench/report":                  "",
	"bench":                         "bench/load bench/peer bench/proc bench/report bench/workload",
}

func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(strings.ReplaceAll(line, module, "./"))
		pkg := strings.TrimPrefix(fields[0], "./")
		if pkg == "internal/archtest" {
			continue
		}
		may, listed := allowed[pkg]
		if !listed {
			t.Errorf("package %s is not in the architecture", pkg)
		}
		for _, imp := range fields[1:] {
			if dep, ours := strings.CutPrefix(imp, "./"); ours && !slices.Contains(strings.Fields(may), dep) {
				t.Errorf("%s must not import %s", pkg, dep)
			}
		}
	}
}

// foreign lists, for each store, the modules that its users must not have to
// compile: the drivers of the other stores.
var foreign = map[string][]string{
	"task":                  {pgDriver, sqliteDriver, redisDriver},
	"mcptask":               {pgDriver, sqliteDriver, redisDriver},
	"task/memstore":         {pgDriver, sqliteDriver, redisDriver},
	"task/internal/sqlcore": {pgDriver, sqliteDriver, redisDriver},
	"task/sqlitestore":      {pgDriver, redisDriver},
	"task/pgstore":          {sqliteDriver, redisDriver},
	"task/redisstore":       {pgDriver, sqliteDriver},
}

const (
	pgDriver     = "github.com/jackc/"
	sqliteDriver = "github.com/ncruces/"
	redisDriver  = "github.com/redis/"
)

// A program that uses one store compiles no driver of another.
func TestDrivers(t *testing.T) {
	for pkg, drivers := range foreign {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for dep := range strings.Lines(string(out)) {
			if slices.ContainsFunc(drivers, func(driver string) bool { return strings.HasPrefix(dep, driver) }) {
				t.Errorf("%s depends on %s", pkg, strings.TrimSpace(dep))
			}
		}
	}
}

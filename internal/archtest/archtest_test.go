// Package archtest holds the architecture as a test: which package may import
// which. It has no code of its own.
package archtest

import (
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/thoughtgate/thoughtgate-go/"

// allowed lists, for each package, which packages of this module its product
// code may import. A package that is not listed may not exist. Read it as the
// architecture: every line may use only what stands above it. A star stands for the
// packages of one kind, such as the channels.
var allowed = map[string]string{
	"jsonrpc":                       "",
	"internal/pause":                "",
	"mcpname":                       "",
	"task/action":                   "",
	"task/gatetask":                 "",
	"task":                          "task/action task/gatetask",
	"task/storekit":                 "internal/pause task task/action task/auditlog",
	"task/lifecycle":                "task task/action task/gatetask task/storekit",
	"task/auditlog":                 "task task/action",
	"task/gatestore":                "task task/action task/auditlog",
	"task/memstore":                 "task task/gatestore task/storekit task/auditlog task/action",
	"task/internal/sqlcore":         "task task/gatestore task/storekit task/auditlog task/action",
	"task/sqlitestore":              "task task/gatestore task/storekit task/auditlog task/action task/internal/sqlcore",
	"task/pgstore":                  "task task/gatestore task/storekit task/auditlog task/action task/internal/sqlcore internal/pause",
	"task/redisstore":               "task task/gatestore task/storekit task/auditlog task/action internal/pause",
	"task/*store":                   "task task/gatestore task/storekit task/auditlog task/action task/internal/sqlcore internal/pause",
	"task/sealedstore":              "task task/gatestore task/storekit task/auditlog task/gatetask task/action",
	"task/steadystore":              "task task/gatestore task/storekit task/auditlog task/action internal/pause",
	"task/storetest":                "task task/gatestore/gatestoretest",
	"task/gatestore/gatestoretest":  "task task/gatestore task/lifecycle task/storekit task/auditlog task/gatetask internal/grantstore",
	"task/internal/sqltest":         "task task/gatestore task/lifecycle task/storekit task/auditlog task/gatetask task/gatestore/gatestoretest task/internal/sqlcore",
	"internal/safetext":             "",
	"internal/human":                "",
	"internal/logging":              "internal/safetext",
	"mcptask/schema":                "jsonrpc mcpname",
	"mcptask/gatedialect":           "jsonrpc task internal/safetext mcpname mcptask/schema",
	"mcptask":                       "jsonrpc task task/lifecycle task/storekit task/gatetask task/action internal/safetext mcpname mcptask/schema mcptask/gatedialect",
	"internal/version":              "",
	"internal/config":               "internal/localuser internal/policy internal/toolpin",
	"docs":                          "",
	"docs/picture":                  "",
	"internal/clientconfig":         "internal/localhost internal/secrets",
	"internal/audit":                "task task/auditlog task/gatetask internal/safetext internal/passkey",
	"internal/admission":            "",
	"internal/deadline":             "",
	"internal/ownstack":             "",
	"internal/localhost":            "",
	"internal/localuser":            "",
	"internal/oauth":                "internal/localhost internal/safetext internal/publicip",
	"internal/publicip":             "",
	"internal/connection":           "internal/pause internal/catalog internal/keyring internal/mcp internal/oauth internal/safetext internal/upstream/httpclient task task/auditlog task/gatestore",
	"internal/process":              "internal/localuser",
	"internal/passkey":              "task task/gatestore task/gatetask task/auditlog internal/safetext",
	"internal/provenance":           "task task/gatestore task/gatetask internal/process internal/safetext",
	"internal/doctest":              "",
	"internal/testenv":              "",
	"internal/testenv/authserver":   "internal/testenv",
	"internal/testenv/softkey":      "",
	"internal/testenv/spans":        "",
	"internal/testenv/pipeserver":   "jsonrpc",
	"internal/testenv/taskserver":   "",
	"internal/failpoint":            "task task/gatestore task/auditlog internal/pause",
	"internal/explore":              "",
	"internal/metrics":              "mcpname",
	"internal/otlp":                 "",
	"internal/tracing":              "internal/otlp internal/pause",
	"internal/mcp":                  "jsonrpc mcptask mcptask/gatedialect mcpname mcptask/schema",
	"internal/secrets":              "",
	"internal/policy":               "jsonrpc mcpname internal/secrets internal/human",
	"internal/policytest":           "internal/config internal/policy internal/safetext mcpname",
	"internal/callrecord":           "internal/pause internal/policy jsonrpc task task/gatestore internal/safetext",
	"internal/callexport":           "internal/callrecord internal/otlp internal/pause",
	"internal/replay":               "internal/callrecord internal/policy internal/safetext",
	"internal/toolpin":              "jsonrpc internal/safetext",
	"internal/catalog":              "jsonrpc task internal/logging internal/metrics internal/policy internal/safetext internal/toolhistory internal/toolpin mcpname task/auditlog task/gatetask",
	"internal/suggest":              "internal/callrecord internal/policy internal/replay internal/safetext internal/secrets",
	"internal/grantstore":           "task task/gatestore task/lifecycle task/gatetask task/action",
	"internal/toolhistory":          "task task/gatestore task/storekit task/auditlog task/action internal/safetext internal/policy",
	"internal/review":               "internal/callrecord jsonrpc task task/gatestore task/storekit task/auditlog task/gatetask task/action internal/admission internal/audit internal/grantstore internal/policy internal/safetext internal/secrets internal/toolhistory mcpname",
	"internal/approval":             "internal/passkey jsonrpc task task/gatestore task/lifecycle task/storekit task/gatetask task/action internal/review internal/policy internal/logging internal/safetext internal/ownstack internal/grantstore internal/toolhistory internal/pause mcpname task/auditlog internal/human internal/callrecord",
	"internal/highlight":            "",
	"internal/identity":             "internal/localuser internal/admission internal/logging internal/policy",
	"internal/keyring":              "task task/gatestore",
	"internal/operator":             "internal/admission internal/keyring internal/logging internal/policy task task/gatestore internal/identity internal/human",
	"internal/approval/api":         "internal/callrecord internal/replay internal/connection internal/provenance internal/toolhistory internal/approval internal/review internal/audit internal/channel internal/operator internal/safetext task task/lifecycle task/gatetask internal/grantstore",
	"internal/channel":              "internal/approval internal/review internal/config internal/operator internal/safetext internal/policy task task/gatestore task/lifecycle task/storekit internal/pause task/gatetask",
	"internal/channel/*":            "task task/gatestore task/gatetask internal/approval internal/review internal/channel internal/channel/webhook internal/config internal/operator internal/safetext internal/pause internal/publicip",
	"internal/channel/chattest":     "internal/approval internal/approval/api internal/channel internal/keyring internal/operator internal/policy task task/gatestore task/gatetask task/memstore",
	"internal/channel/pushtest":     "",
	"internal/channel/slacktest":    "",
	"internal/approval/client":      "internal/connection internal/toolhistory internal/approval internal/review internal/audit task task/auditlog task/gatetask internal/grantstore internal/pause jsonrpc internal/callrecord internal/replay",
	"internal/inbox":                "internal/callrecord internal/suggest internal/connection internal/passkey internal/provenance internal/toolhistory internal/approval internal/review internal/channel internal/channel/push internal/approval/api internal/audit internal/highlight internal/operator internal/safetext internal/policy task task/lifecycle task/auditlog task/gatetask internal/grantstore mcpname",
	"internal/upstream":             "jsonrpc task task/gatestore task/lifecycle task/gatetask internal/approval internal/catalog internal/oauth internal/policy internal/mcp internal/metrics internal/tracing mcpname mcptask/schema",
	"internal/upstream/http1":       "internal/deadline internal/ownstack",
	"internal/upstream/httpclient":  "internal/upstream/http1 jsonrpc task task/lifecycle internal/admission internal/approval internal/policy internal/upstream internal/mcp internal/metrics internal/tracing mcpname",
	"internal/upstream/stdioclient": "jsonrpc internal/upstream internal/mcp internal/metrics internal/tracing mcpname",
	"internal/upstream/translate":   "jsonrpc internal/upstream internal/upstream/httpclient internal/mcp mcpname mcptask/schema",
	"internal/upstream/bridge":      "jsonrpc internal/admission internal/logging internal/safetext internal/upstream internal/upstream/httpclient internal/upstream/stdioclient internal/mcp mcpname",
	"internal/upstream/several":     "jsonrpc internal/mcp internal/upstream internal/upstream/httpclient mcpname task/gatestore",
	"internal/signin":               "internal/localhost internal/oauth internal/localdesk internal/localuser internal/pause internal/mcp internal/upstream/httpclient",
	"internal/upstream/httplink":    "jsonrpc internal/upstream internal/upstream/httpclient internal/mcp mcpname",
	"internal/conversation":         "internal/callrecord jsonrpc task task/gatestore task/lifecycle task/storekit mcptask mcptask/gatedialect internal/approval internal/catalog internal/keyring internal/policy internal/mcp internal/metrics internal/tracing internal/admission internal/logging internal/safetext internal/upstream internal/ownstack internal/pause mcpname mcptask/schema internal/human task/gatetask",
	"internal/mcpclient":            "jsonrpc internal/mcp internal/upstream internal/upstream/httpclient internal/upstream/httplink mcpname",
	"internal/mcphttp":              "internal/localhost jsonrpc task internal/conversation internal/catalog internal/identity internal/localuser internal/mcp internal/metrics internal/oauth internal/tracing internal/admission internal/upstream internal/upstream/httpclient internal/upstream/several internal/ownstack mcpname internal/human",
	"internal/mcpstdio":             "jsonrpc internal/admission internal/conversation internal/catalog internal/policy internal/mcp internal/metrics internal/tracing internal/logging internal/safetext internal/upstream mcpname internal/human",
	"internal/storage":              "internal/callrecord task task/gatestore task/storekit task/auditlog task/*store internal/toolhistory",
	"internal/localdesk":            "internal/localhost internal/localuser internal/logging internal/pause",
	"internal/isolate":              "internal/pause internal/clientconfig internal/identity internal/safetext",
	"internal/demo":                 "jsonrpc mcpname",
	"internal/httpserver":           "internal/admission internal/deadline internal/localhost internal/logging internal/mcp",
	"internal/app":                  "internal/callrecord internal/localhost internal/connection internal/oauth internal/localuser internal/process internal/provenance jsonrpc task task/gatestore task/lifecycle internal/conversation internal/storage internal/approval internal/approval/api internal/channel internal/channel/* internal/config internal/catalog internal/identity internal/inbox internal/keyring internal/logging internal/policy internal/mcphttp internal/upstream internal/upstream/httpclient internal/metrics internal/operator internal/tracing internal/admission internal/httpserver internal/mcp internal/mcpstdio internal/upstream/stdioclient internal/upstream/bridge internal/upstream/httplink internal/localdesk internal/version internal/grantstore internal/toolhistory mcpname mcptask/schema internal/toolpin internal/review internal/replay internal/suggest internal/secrets internal/upstream/translate internal/upstream/several",
	"cmd/thoughtgate":               "internal/signin internal/policytest internal/callexport internal/callrecord internal/replay internal/oauth internal/isolate internal/upstream/httpclient internal/upstream/httplink internal/process docs task task/lifecycle task/gatestore task/auditlog task/gatetask internal/app internal/approval internal/review internal/approval/client internal/audit internal/clientconfig internal/config internal/demo internal/catalog internal/keyring internal/logging internal/safetext internal/policy internal/storage task/sealedstore internal/localdesk internal/version mcpname internal/identity internal/toolpin internal/mcpclient internal/suggest internal/pause internal/human",
	"e2e":                           "",
	"e2e/browser":                   "",
	"e2e/clients":                   "",
	"e2e/wrap":                      "",
	"e2e/crash":                     "",
	"e2e/hosts/model":               "",
	"e2e/hosts":                     "e2e/hosts/model internal/demo internal/testenv",
	"conformance/suite":             "internal/testenv",
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
	"bench":                         "bench/load bench/peer bench/proc bench/report bench/workload internal/testenv",
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
		for pattern, imports := range allowed {
			if matches(pattern, pkg) && !listed {
				may, listed = imports, true
			}
		}
		if !listed {
			t.Errorf("package %s is not in the architecture", pkg)
		}
		for _, imp := range fields[1:] {
			if dep, ours := strings.CutPrefix(imp, "./"); ours && !slices.ContainsFunc(strings.Fields(may), func(pattern string) bool { return matches(pattern, dep) }) {
				t.Errorf("%s must not import %s", pkg, dep)
			}
		}
	}
}

func matches(pattern, pkg string) bool {
	ok, err := path.Match(pattern, pkg)
	return ok && err == nil
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

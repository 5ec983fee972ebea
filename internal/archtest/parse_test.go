package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// parsing are the functions that parse whole messages, in the packages through which a held
// call passes between its arrival and the request that is sent for it.
var parsing = map[string]string{
	"internal/approval.read":               "a batch, of which some messages may have been changed since it was parsed",
	"internal/approval.readArguments":      "the arguments that an approver has corrected",
	"internal/approval.readStored":         "the call of a task that is to run, as the store has it",
	"internal/approval.NewUpstreamRequest": "the same of a task that runs, to ask the upstream about it",
	"internal/upstream.parsed":             "what the gate asks for itself, and calls that are made as tasks",
	"internal/upstream.placeAnswers":       "an answer to a batch",
	"internal/upstream.hasResult":          "an answer to a batch that was refused",
	"internal/upstream.ReadLine":           "a line of a server at a pipe",
}

// A held call is parsed once when it arrives and once when its task is read from the store.
func TestHeldCallsAreParsedOnce(t *testing.T) {
	found := map[string]bool{}
	for _, dir := range []string{"approval", "review", "catalog", "grantstore", "policy", "upstream"} {
		files, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has %d files, %v", dir, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && parses(f) {
					found["internal/"+dir+"."+f.Name.Name] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if parsing[name] == "" {
			t.Errorf("%s parses a message: hand the parsed one along, or say here what it parses", name)
		}
	}
	for name := range parsing {
		if !found[name] {
			t.Errorf("%s parses nothing", name)
		}
	}
}

// parses reports whether a function calls jsonrpc.Parse or jsonrpc.ParseMessage.
func parses(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := s.X.(*ast.Ident)
		found = found || ok && pkg.Name == "jsonrpc" && (s.Sel.Name == "Parse" || s.Sel.Name == "ParseMessage")
		return true
	})
	return found
}

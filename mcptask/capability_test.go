package mcptask_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/mcptask"
)

// TYPE-05: what the constructors write is what the protocol says, and can be
// read back.
func TestServerCapability(t *testing.T) {
	s := loadSchemas(t)
	for _, tt := range []struct {
		name       string
		capability mcptask.ServerCapability
		text       string
		support    mcptask.ServerSupport
	}{
		{
			"full", mcptask.FullServer(), `{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`,
			mcptask.ServerSupport{Call: true, List: true, Cancel: true},
		},
		{"tools only", mcptask.ToolsOnly(), `{"requests":{"tools":{"call":{}}}}`, mcptask.ServerSupport{Call: true}},
		{
			"callers cannot be told apart", mcptask.ServerSupport{Call: true, Cancel: true}.Capability(),
			`{"cancel":{},"requests":{"tools":{"call":{}}}}`,
			mcptask.ServerSupport{Call: true, Cancel: true},
		},
		{"nothing", mcptask.ServerCapability{}, `{}`, mcptask.ServerSupport{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := mustMarshal(t, tt.capability)
			if diff := cmp.Diff(tt.text, string(text)); diff != "" {
				t.Errorf("capability (-want +got):\n%s", diff)
			}
			whole := mustMarshal(t, mcptask.Object{{Name: "tasks", Value: text}})
			s.mustMatch(t, schemaLegacy, "ServerCapabilities", whole)
			if diff := cmp.Diff(tt.support, mcptask.DetectServer(whole)); diff != "" {
				t.Errorf("detected (-want +got):\n%s", diff)
			}
		})
	}
}

// TYPE-05, the client's side.
func TestClientCapability(t *testing.T) {
	s := loadSchemas(t)
	for _, tt := range []struct {
		support mcptask.ClientSupport
		text    string
	}{
		{
			mcptask.ClientSupport{Sample: true, Elicit: true, List: true, Cancel: true},
			`{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}}`,
		},
		{mcptask.ClientSupport{Elicit: true}, `{"requests":{"elicitation":{"create":{}}}}`},
		{mcptask.ClientSupport{Sample: true}, `{"requests":{"sampling":{"createMessage":{}}}}`},
		{mcptask.ClientSupport{}, `{}`},
	} {
		t.Run(tt.text, func(t *testing.T) {
			text := mustMarshal(t, tt.support.Capability())
			if diff := cmp.Diff(tt.text, string(text)); diff != "" {
				t.Errorf("capability (-want +got):\n%s", diff)
			}
			whole := mustMarshal(t, mcptask.Object{{Name: "tasks", Value: text}})
			s.mustMatch(t, schemaLegacy, "ClientCapabilities", whole)
			if diff := cmp.Diff(tt.support, mcptask.DetectClient(whole)); diff != "" {
				t.Errorf("detected (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(mcptask.ClientSupport{Sample: true, Elicit: true, List: true, Cancel: true}.Capability(),
		mcptask.FullClient()); diff != "" {
		t.Errorf("full client (-want +got):\n%s", diff)
	}
}

func TestDetectServer(t *testing.T) {
	all := mcptask.ServerSupport{Call: true, List: true, Cancel: true}
	call := mcptask.ServerSupport{Call: true}
	none := mcptask.ServerSupport{}
	tests := map[string]mcptask.ServerSupport{
		`{"tasks":true}`: all,
		`{"tasks":{"list":true,"cancel":true,"requests":true}}`:         all,
		`{"tasks":{"requests":{"tools":true}}}`:                         call,
		`{"tasks":{"requests":{"tools":{}}}}`:                           call,
		`{"tasks":{"requests":{"tools":{"call":true}}}}`:                call,
		`{"tasks":{"requests":{"tools/call":true}}}`:                    call,
		`{"tasks":{"requests":{"tools/call":{}}}}`:                      call,
		`{"experimental":{"tasks":{"requests":{"tools":{"call":{}}}}}}`: call,
		`{"experimental":{"tasks":true}}`:                               all,
		`{"tasks":null,"experimental":{"tasks":true}}`:                  all,
		`{"tasks":{"list":{}},"experimental":{"tasks":true}}`:           {List: true},
		`{"notifications":{"tasks":{"status":true}}}`:                   {Notify: true},
		`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`:           {Extension: true},
		`{"extensions":{"io.modelcontextprotocol/tasks":{"v":1}}}`:      {Extension: true},
		`{"extensions":{"io.modelcontextprotocol/tasks":false}}`:        none,
		`{"extensions":{"io.modelcontextprotocol/ui":{}}}`:              none,
		`{"tasks":{}}`:    none,
		`{"tasks":false}`: none,
		`{"tasks":{"list":null,"cancel":false,"requests":{}}}`:      none,
		`{"tasks":{"requests":{"tools":{"call":null}}}}`:            none,
		`{"tasks":{"requests":{"tools":{"call":false}}}}`:           none,
		`{"tasks":{"requests":{"tools":{"list":{}}}}}`:              none,
		`{"tasks":{"requests":{"prompts":{"get":{}}}}}`:             none,
		`{"Tasks":true,"TASKS":{"requests":{"tools":{"call":{}}}}}`: none,
		`{"tools":{"call":{}}}`:                                     none,
		`{}`:                                                        none, `null`: none, `true`: none, `[]`: none, ``: none, `{"tasks":`: none,
	}
	for text, want := range tests {
		if diff := cmp.Diff(want, mcptask.DetectServer([]byte(text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestDetectClient(t *testing.T) {
	for text, want := range map[string]mcptask.ClientSupport{
		`{"tasks":true}`: {Sample: true, Elicit: true, List: true, Cancel: true},
		`{"tasks":{"requests":{"elicitation":{}}}}`:                            {Elicit: true},
		`{"tasks":{"requests":{"sampling/createMessage":true}}}`:               {Sample: true},
		`{"experimental":{"tasks":{"cancel":{}}}}`:                             {Cancel: true},
		`{"tasks":{"requests":{"tools":{"call":{}}}}}`:                         {},
		`{"extensions":{"io.modelcontextprotocol/tasks":{}},"elicitation":{}}`: {Extension: true},
		`{"tasks":{"requests":{"elicitation":{"create":{}}}},"extensions":{}}`: {Elicit: true},
	} {
		if diff := cmp.Diff(want, mcptask.DetectClient([]byte(text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// The extension is declared as exactly {}, on every request anew.
func TestExtension(t *testing.T) {
	s := loadSchemas(t)
	extensions := mcptask.Extensions()
	settings, _ := extensions.Get(mcptask.Extension)
	s.mustMatch(t, schemaTasks, "TasksExtensionCapability", settings)
	whole := mustMarshal(t, mcptask.Object{{Name: "extensions", Value: mustMarshal(t, extensions)}})
	s.mustMatch(t, schemaModern, "ServerCapabilities", whole)
	s.mustMatch(t, schemaModern, "ClientCapabilities", whole)
	if diff := cmp.Diff(`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, string(whole)); diff != "" {
		t.Errorf("extension (-want +got):\n%s", diff)
	}
	declaring := mcptask.Object{{Name: mcptask.MetaClientCapabilities, Value: whole}}
	legacyOnly := mcptask.Object{{Name: mcptask.MetaClientCapabilities, Value: json.RawMessage(`{"tasks":true}`)}}
	if !mcptask.RequestDeclaresTasks(declaring) || mcptask.RequestDeclaresTasks(legacyOnly) || mcptask.RequestDeclaresTasks(nil) {
		t.Error("the extension was not seen, or where it is not")
	}
}

package httpclient

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// Improper returns the problem of an answer that is none that a client of MCP
// can be given: one that sends it elsewhere, changes the protocol, has no valid
// status, or is encoded though the gate did not ask for that.
func Improper(resp *http.Response) *wire.Problem {
	switch encoding := resp.Header.Get("Content-Encoding"); {
	case isRedirect(resp.StatusCode):
		return &wire.Problem{Type: wire.UpstreamRedirect, Cause: fmt.Errorf("status %d", resp.StatusCode)}
	case resp.StatusCode < http.StatusOK || resp.StatusCode > 599:
		return &wire.Problem{Type: wire.UpstreamInvalid, Cause: fmt.Errorf("status %d", resp.StatusCode)}
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the upstream's answer has an encoding that was not requested"}
	default:
		return nil
	}
}

func isRedirect(status int) bool {
	return status >= http.StatusMultipleChoices && status < http.StatusBadRequest
}

// MediaType returns the media type in a Content-Type header, or nothing.
func MediaType(contentType string) string {
	if contentType == "application/json" || contentType == "text/event-stream" {
		return contentType
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return media
}

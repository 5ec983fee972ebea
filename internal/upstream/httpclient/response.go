package httpclient

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
)

// CheckResponse returns a problem if an answer cannot be passed on to a client of MCP: it
// redirects, changes the protocol, has no valid status, or has an encoding that was not requested.
func CheckResponse(resp *http.Response) *mcp.Problem {
	switch encoding := resp.Header.Get("Content-Encoding"); {
	case isRedirect(resp.StatusCode):
		return &mcp.Problem{Type: mcp.UpstreamRedirect, Cause: fmt.Errorf("status %d", resp.StatusCode)}
	case resp.StatusCode < http.StatusOK || resp.StatusCode > 599:
		return &mcp.Problem{Type: mcp.UpstreamInvalid, Cause: fmt.Errorf("status %d", resp.StatusCode)}
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the upstream's answer has an encoding that was not requested"}
	default:
		return nil
	}
}

func isRedirect(status int) bool {
	return status >= http.StatusMultipleChoices && status < http.StatusBadRequest
}

// MediaType returns the media type of a Content-Type header, or nothing if it is not valid.
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

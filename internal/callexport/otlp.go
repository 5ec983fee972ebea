package callexport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/otlp"
)

// A collector takes entries as OTLP logs.
type collector struct {
	client  *otlp.Client
	version string
}

// Send implements [Receiver].
func (c *collector) Send(ctx context.Context, entries []callrecord.Entry) error {
	records := make([]*logspb.LogRecord, len(entries))
	for i := range entries {
		var err error
		if records[i], err = logRecord(&entries[i]); err != nil {
			return err
		}
	}
	message, err := proto.Marshal(&logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{ // the same bytes as an ExportLogsServiceRequest
		Resource: &resourcepb.Resource{Attributes: attributes("service.name", "thoughtgate", "service.version", c.version)},
		ScopeLogs: []*logspb.ScopeLogs{{
			Scope:      &commonpb.InstrumentationScope{Name: "thoughtgate.calls", Version: c.version},
			LogRecords: records,
		}},
	}}})
	if err != nil {
		return err
	}
	wait, err := c.client.Post(ctx, message)
	if err != nil && wait != otlp.Never {
		err = &TemporaryError{err, min(wait, time.Hour)}
	}
	return err
}

// logRecord returns e as a log record. Its body is e as JSON. Its attributes are what people search
// for.
func logRecord(e *callrecord.Entry) (*logspb.LogRecord, error) {
	var line bytes.Buffer
	if err := e.Write(&line); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(line.Bytes())
	r := &logspb.LogRecord{
		TimeUnixNano: uint64(e.Time.UnixNano()), ObservedTimeUnixNano: uint64(e.Time.UnixNano()),
		SeverityNumber: logspb.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO",
		EventName: "thoughtgate.call." + valid(string(e.Event)),
		Body:      text(strings.TrimSuffix(line.String(), "\n")),
		Attributes: attributes(
			"log.record.uid", hex.EncodeToString(sum[:16]), // tells a receiver that an entry arrives again
			"thoughtgate.id", e.ID, "thoughtgate.upstream", e.Upstream, "thoughtgate.method", e.Method, "thoughtgate.name", e.Name,
			"thoughtgate.principal", e.Principal, "thoughtgate.action", string(e.Action), "thoughtgate.observed", string(e.Observed),
			"thoughtgate.workflow", e.Workflow, "thoughtgate.rule", e.Rule, "thoughtgate.snapshot", e.Snapshot,
			"thoughtgate.outcome", e.Outcome, "thoughtgate.by", strings.Join(e.By, ", ")),
	}
	if e.Took > 0 {
		r.Attributes = append(r.Attributes, &commonpb.KeyValue{
			Key: "thoughtgate.took", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: int64(e.Took)}},
		})
	}
	if notable(e) {
		r.SeverityNumber, r.SeverityText = logspb.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN"
	}
	return r, nil
}

// notable reports whether a call was not allowed to run.
func notable(e *callrecord.Entry) bool {
	return e.Outcome == callrecord.Denied || e.Outcome == callrecord.Refused || e.Outcome == "rejected"
}

// attributes returns attributes for names and values that are not empty.
func attributes(pairs ...string) []*commonpb.KeyValue {
	var all []*commonpb.KeyValue
	for pair := range slices.Chunk(pairs, 2) {
		if name, value := pair[0], pair[1]; value != "" {
			all = append(all, &commonpb.KeyValue{Key: name, Value: text(value)})
		}
	}
	return all
}

func text(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: valid(s)}}
}

// valid returns s in UTF-8. Otherwise a collector would refuse the whole message.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Package auditlog is the journal of a store: the audit log of its tasks. Its entries are notes, chained by
// hashes, so that a journal that was changed afterwards shows where.
package auditlog

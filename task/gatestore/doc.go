// Package gatestore is the contract of a store for a gateway: tasks, a journal, small
// records, and the early deletion of tasks when the store is full. All stores of this
// repository implement it.
package gatestore

// Package spool is the queue of one run's events on the local disk. Events get
// their number here, and stay here until the bus has acknowledged them and the
// run is over.
//
// A run's spool is the directory <root>/<token of the run's id>:
//
//	meta.json   who the run is, and what a later flush needs to ship it
//	lock        held with flock(2) by the one process that may write
//	<first>.seg segments, named by the number of their first record
//	cursor      the number up to which records are acknowledged
//	ended       exists once the last record is written
//	reserve     blocks kept back for the last words on a full disk
//	commands    the journal of commands, see [Journal]
//
// # Segment
//
// All integers are little endian. A segment begins with 32 bytes:
//
//	 0  magic "cbcspool"
//	 8  u32 version of the form, 1
//	12  u64 number of the first record
//	20  u64 number of the record before it, 0 for none
//	28  u32 CRC-32C of bytes 0 to 28
//
// Then records, one behind the other:
//
//	 0  u32 n: bytes from offset 8 on
//	 4  u32 CRC-32C of bytes 0 to 4 and of the n bytes from offset 8
//	 8  u64 number
//	16  u32 m: bytes of meta
//	20  m bytes of meta, then n-12-m bytes of data
//
// # What survives
//
// When an append returns, its record is in the kernel (write(2)): it survives
// the death of this process at any moment. It survives a power loss after
// [Spool.Sync], which [Options.SyncEvery] calls regularly.
//
// One process writes, and within it appends may come from several goroutines.
// One publisher reads at the same time; neither waits for the other's disk
// access.
package spool

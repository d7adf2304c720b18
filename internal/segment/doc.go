// Package segment is the archive: its format, writer, reader and verifier.
//
// # Objects
//
// An archive is a set of objects in a [Store], by key; T is the tenant's id as a subject
// token, N a number of 12 digits:
//
//	signers/000001.json               the signing keys, each signed by the one before: [Signer]
//	tenants/T                         the tenant's id and LF
//	t/T/heads/N.json                  the chain: [Head], one object each, 1, 2, 3 …
//	t/T/segments/<day>Z/<time>Z-<uid>.seg
//	t/T/index/N-N.idx                 which segment has which run, for heads N to N
//
// and in a second one, which may be the same:
//
//	keys/T/<2>/<uid>.keys             the keys of the runs in segment <uid>
//
// The chain is what counts. A head is created exclusively under its number, and that is the moment
// in which its segment gets into the archive; an object that no head names is not in
// it. A segment has records of one tenant that the streams stored on one UTC day, and
// the names of day and first record end in Z.
//
// # Segment
//
// All integers are little endian, times are Unix nanoseconds, checksums CRC-32C. A segment
// begins with its header, of h bytes:
//
//	 0  magic "cbcasseg"
//	 8  u32 version of the form, 1
//	12  u32 h
//	16  16 bytes uid, random
//	32  i32 day, since 1970-01-01
//	36  u16 bytes of the tenant's id, then u16 0
//	40  the tenant's id
//	h-4 u32 checksum of what is before
//
// Then frames, one behind the other: blocks, and one directory. A frame begins with
//
//	0  u32 n: bytes from offset 8 on
//	4  u32 checksum of bytes 0 to 4 and of the n bytes from offset 8
//	8  u8 kind: 1 block, 2 directory
//
// A block has records of one run and log that follow each other:
//
//	  9  u8 0
//	 10  u16 r: bytes of the run's id
//	 12  i32 log: a partition of the events, -1 CTL, -2 CMD
//	 16  u32 number of records
//	 20  u32 number of different seqs among them
//	 24  u32 bytes of the records, before compression
//	 28  u64 first and u64 last seq within the run, 0 for none
//	 44  u32 i and u32 n of the first record's part, then of the last one's, 0 for whole
//	 60  u64 first and u64 last sequence in the stream
//	 76  i64 earliest and i64 latest time stored
//	 92  12 bytes nonce
//	104  the run's id
//	104+r  AES-256-GCM of the zstd of the records, with the run's key; authenticated with it are
//	     the uid and bytes 8 to 104+r
//
// A record:
//
//	 0  u32 bytes from offset 4 on
//	 4  u64 sequence in the stream
//	12  i64 time stored
//	20  u64 seq within the run, 0 for none
//	28  u32 i, u32 n of the part, 0 for whole
//	36  u16 s: bytes of the subject
//	38  u16 number of headers
//	40  u32 bytes of data, then u32 0
//	48  the subject; then for each header u16 and u32 bytes of name and value, the name, the
//	    value; then the data
//
// The directory:
//
//	 9  3 bytes 0
//	12  u32 bytes before compression
//	16  zstd of: u32 number of runs, for each u16 bytes of its id and the id; u32 number of
//	    blocks, for each u64 offset, u32 bytes, u32 run (from 0), bytes 12 to 92 of the block, 32
//	    bytes of its hash
//
// The file ends with
//
//	 0  u64 offset of the directory
//	 8  u64 bytes of the file
//	16  u32 number of blocks
//	20  u32 version
//	24  u32 checksum of what is before
//	28  magic "cbcasend"
//
// # Proof
//
// A segment's root is that of a Merkle tree as in RFC 6962, section 2.1, with SHA-256. Its
// leaves are the header, each block's frame, the directory's frame and the end: every
// byte of the file. A block's hash in the directory is that of its leaf, so one block
// is proven by reading header, directory and end beside it. The leaves have what is encrypted: who
// has no key can verify, and what is erased stays verifiable.
//
// A head has the root, the hash of the head before, and an Ed25519 signature; see [Head.Signed]
// and [Head.Hash] for what is hashed. Who has the archive's first public key follows the signers
// from there. What the chain cannot prove is that its end is still there: for that, heads
// must be kept elsewhere, too.
//
// # Keys
//
// A page of keys:
//
//	 0  magic "cbcaskey"
//	 8  u32 version, 1
//	12  16 bytes uid of the segment
//	28  u16 t: bytes of the tenant's id
//	30  u16 flags: 1 where the keys are wrapped
//	32  u32 number of runs
//	36  the tenant's id; then for each run, sorted: u16 bytes of its id, u8 1 where erased, u8 0,
//	    the id, and unless erased 32 bytes of key, or wrapped: 12 bytes nonce and 48 of
//	    AES-256-GCM with the wrapping key, authenticated with the uid and the run's id
//	-4  u32 checksum of what is before
//
// # Index
//
// There is one for each 16, 256, 4096 and 65536 heads. It is derived from the segments, not
// signed, and can be made anew; [Verify] compares.
//
//	 0  magic "cbcasidx"
//	 8  u32 version, u32 0
//	16  u64 first, u64 last head
//	32  frames as the directory's: kind 3 with the heads, a line each; kind 4 with entries, as many
//	    as needed; kind 5 with the first run (u16 bytes, id), u64 offset, u32 bytes and u32 number of
//	    entries of each frame of entries; then an end as a segment's
//
// An entry is u16 bytes of the run's id, the id, u64 head, u64 first and last seq, u64 records, u64
// bytes of its blocks, i64 earliest and latest time stored, u32 i and n of the last part.
// Entries are sorted by run and head.
//
// # What survives
//
// [Archive.Append] keeps records in memory. [Archive.Sync] puts them into files of this
// machine; [Archive.Seal] puts whole segments into the store: first the page of keys, then the
// segment, then the head. A crash between any two leaves what the next process finds: the
// files, of which a torn end is cut behind the last whole block, or objects that are there
// already and are not made twice. Blocks are written run by run, not in the order of the stream:
// such files may have late places and lack early ones that were in memory. So they are sealed
// when this process was given their logs again up to their last places, or when the log says
// that it has nothing there any more ([Archive.Gone], [Archive.Rebuilt]); until then nothing
// behind them in their tenant's chain is.
package segment

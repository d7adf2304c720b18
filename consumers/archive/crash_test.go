package archive

const envCrash = "ARCHIVE_TEST_CRASH"

func crashChild() int { return 0 }

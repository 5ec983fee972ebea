-- Records say how each tool was last approved, and results have a checksum. Programs of
-- earlier versions would not keep the former, and cannot read the latter.
SELECT 1;

-- A finished job with one iteration of one task, as the tunefleet of revision 0001 wrote it.
-- Traces and programs are zlib.
INSERT INTO jobs VALUES (1, 'a', 'f', 'done', 1.0, 2.0, 'd', 'd', 't', 't', '{"budget":{"seconds":null,"target_latency_s":null,"trials":64},"device":{"caches":[["l1",32768]],"cores":4,"isa":["avx2"],"key":"","kind":"cpu","memory_gib":16,"name":"x"},"network":{"digest":"d","inputs":[],"name":"net","outputs":[],"source":"zoo"},"settings":{"build":{},"measure":{},"search":{"batch":7},"transfer":true},"target":{"kind":"llvm","mattr":[],"mcpu":"skylake","threads":4},"toolchain":{"llvm":"20","measure_version":1,"tunefleet":"0.1","tvm":"0.27.0"}}', '{"n":1}');
INSERT INTO tasks VALUES ('t', 'conv2d', '1x3', 1e6, X'78012b28ca4f2f4acc05000c0f02f9');
INSERT INTO job_tasks VALUES ('a', 0, 't', 'conv', 2);
INSERT INTO candidates VALUES (1, 't', 'c', 'digest', X'78018b8e0500011500b9', X'0001');
INSERT INTO stages VALUES
  (1, 'a', 't', 0, 'select', 10.0, 0.5, '""', '{"exhausted":false}'),
  (2, 'a', 't', 0, 'build', 11.0, 0.5, '""', '{"built":[{"args":[[[1],"float32"]],"build_s":0.1,"candidate_id":"c","path":"/c.so"}],"failed":[]}'),
  (3, 'a', 't', 0, 'profile', 12.0, 0.5, '""', '{"failed":[],"measured":[["c",{"drift":0.0,"latencies_s":[0.001]},0.2]]}'),
  (4, 'a', 't', 0, 'update', 13.0, 0.5, '"measured again"', '{"trained_on":1}');
INSERT INTO models VALUES (4, 'a', X'6d');
INSERT INTO selections VALUES (1, 0, 1, 0.5);
INSERT INTO trials VALUES (1, 'a', 't', 'c', 1, 3, 0, 0.5, 0.1, 0.2, 0.001, NULL, '{"drift":0.0,"latencies_s":[0.001]}');

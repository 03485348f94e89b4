"""The landing page's style sheet: system fonts, light and dark by the reader's setting."""

STYLE = """
:root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--ink:#15191f;--soft:#5b6572;--line:#e1e5ea;
--accent:#3566d6;--good:#14743a;--good-bg:#dff3e5;--bad:#b3241b;--bad-bg:#fde5e3;--wait:#7a5200;
--wait-bg:#fdf0cf;--track:#e6eaf0}
@media(prefers-color-scheme:dark){:root{--page:#0f1216;--card:#171b21;--ink:#e8ebef;--soft:#98a3b1;
--line:#29303a;--accent:#6f9bff;--good:#6fd694;--good-bg:#12321f;--bad:#ff8d84;--bad-bg:#43191a;
--wait:#f2c75c;--wait-bg:#3b2f0e;--track:#2a323d}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.45 system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",sans-serif}
header,main,footer{max-width:76rem;margin:0 auto;padding:0 1.5rem}
header{display:flex;justify-content:space-between;align-items:center;gap:1rem;padding-top:1.75rem}
p,h1,h2{margin:0}
h1{font-size:1.7rem;line-height:1.25;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:2rem 0 .6rem}
small{color:var(--soft);font-weight:400;font-size:.85em}
h2 small{margin-left:.5rem}
.brand{color:var(--soft);font-weight:600}
.brand span{font-weight:400}
.pill,.state,.badge{border-radius:99px;font-weight:600;white-space:nowrap}
.pill{padding:.4rem 1rem}
.state{padding:.12rem .6rem;font-size:.87rem}
.badge{padding:.1rem .5rem;font-size:.78rem;background:var(--wait-bg);color:var(--wait)}
.good{background:var(--good-bg);color:var(--good)}
.bad{background:var(--bad-bg);color:var(--bad)}
.wait{background:var(--wait-bg);color:var(--wait)}
.note{background:var(--bad-bg);border-left:4px solid var(--bad);border-radius:8px;padding:.75rem 1rem;
margin-top:1rem;font-weight:600;overflow-wrap:anywhere}
.fix{font:.93em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;margin-top:.3rem}
.scroll,.empty{background:var(--card);border:1px solid var(--line);border-radius:10px;overflow-x:auto}
.empty{padding:1rem;color:var(--soft)}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.6rem .9rem;text-align:left;vertical-align:middle}
th{color:var(--soft);font-size:.82rem;font-weight:600;white-space:nowrap}
td{border-top:1px solid var(--line);white-space:nowrap}
.number{text-align:right}
.uuid{display:block;color:var(--soft);font:.8rem ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.bar{display:inline-block;vertical-align:middle;width:6.5rem;height:.5rem;margin-right:.6rem;
border-radius:99px;background:var(--track);overflow:hidden}
.bar i{display:block;height:100%;border-radius:99px;background:var(--accent)}
.lost td{background:var(--bad-bg)}
.mig td{border-top:0;padding-top:.15rem}
.mig td:nth-child(2){padding-left:2.2rem}
.hot{color:var(--bad)}
.unknown{color:var(--soft)}
footer{padding-top:2rem;padding-bottom:2.5rem}
nav{display:flex;flex-wrap:wrap;gap:.75rem}
a{color:var(--accent);font-weight:600;text-decoration:none;background:var(--card);
border:1px solid var(--line);border-radius:10px;padding:.6rem 1rem}
a:hover,a:focus-visible{border-color:var(--accent)}
a span{display:block;color:var(--soft);font-weight:400;font-size:.85rem}
"""

//! Style sheet of the page: light and dark by the reader's scheme, one column on a telephone, and the system's fonts.

/// The style sheet.
pub(super) const STYLE: &str = r#"
:root{color-scheme:light dark;--bg:#f7f7f5;--card:#fff;--text:#1c1e21;--muted:#666b72;--line:#e3e3df;--accent:#2c6e8f;
--soft:#dcebf2;--other:#bf6a34;--bad:#a8382a;--badsoft:#f7e4e0}
@media(prefers-color-scheme:dark){:root{--bg:#131518;--card:#1b1e22;--text:#e5e6e8;--muted:#979ea6;--line:#2c3036;
--accent:#6cb2d2;--soft:#1f3642;--other:#e39a63;--bad:#ec8a7a;--badsoft:#3a211e}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:1160px;margin:0 auto;padding:32px 24px 56px}
h1{font-size:28px;line-height:1.2;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
h1 small{font-size:15px;font-weight:500;color:var(--accent);background:var(--soft);border-radius:999px;padding:3px 11px;vertical-align:4px;
letter-spacing:0;white-space:nowrap}
h2{font-size:18px;line-height:1.3;margin:40px 0 2px;letter-spacing:-.005em}
h3{font-size:14px;line-height:1.35;margin:0;font-weight:600;overflow-wrap:anywhere}
p{margin:0}
.sub,.about{color:var(--muted);overflow-wrap:anywhere}
.sub{margin-top:6px}
.about{font-size:13px;margin-bottom:12px;max-width:78ch}
code,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.88em}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:12px;margin-top:24px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px;min-width:0}
.tile{padding:12px 12px 11px}
.tile b{display:block;font-size:18px;overflow-wrap:anywhere;line-height:1.25;font-weight:600;letter-spacing:-.01em}
.tile span{color:var(--muted);font-size:13px}
.card{padding:14px 16px}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr));gap:12px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:12px}
.top{display:flex;gap:10px;justify-content:space-between;align-items:baseline}
.type{color:var(--muted);font-size:12px;text-align:right;overflow-wrap:anywhere;flex:0 1 auto;max-width:55%}
.facts{color:var(--muted);font-size:12.5px;margin:2px 0 10px;overflow-wrap:anywhere}
.facts em{font-style:normal;color:var(--text)}
svg{display:block;width:100%}
svg.bars{height:64px;border-bottom:1px solid var(--line)}
.tall svg.bars{height:96px}
svg.bars path{fill:var(--accent)}
svg.bars .hit{fill:transparent}
svg.bars g:hover path{fill:var(--other)}
svg.bars g:hover .hit{fill:var(--soft)}
svg.pairs .before{fill:var(--muted);opacity:.55}
svg.pairs .after{fill:var(--accent)}
.axis{display:flex;justify-content:space-between;gap:12px;color:var(--muted);font-size:11.5px;margin-top:3px}
.axis span{overflow-wrap:anywhere;min-width:0}
.axis span:last-child{text-align:right}
.values{list-style:none;margin:8px 0 0;padding:0;font-size:12.5px}
.values li{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:12px;padding:1px 7px;margin:2px 0;border-radius:4px;
background:linear-gradient(var(--soft),var(--soft)) no-repeat left/var(--w) 100%}
.values span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.values i{font-style:normal;color:var(--muted)}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th{font-size:12px;font-weight:500;color:var(--muted);text-align:left}
th,td{padding:7px 12px;border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:top}
tr:last-child td{border-bottom:0}
.n{text-align:right}
td.wrap{white-space:normal;overflow-wrap:anywhere;min-width:240px}
.tag{display:inline-block;background:var(--soft);color:var(--accent);border-radius:999px;padding:0 8px;font-size:12px;margin-left:6px}
.bad{background:var(--badsoft);color:var(--bad)}
.gone{color:var(--muted)}
svg.graph{max-width:860px;margin:0 auto;padding:10px 12px}.narrow{display:none!important}
.graph text{font-size:12.5px;fill:var(--text)}
.graph .note{font-size:11px;fill:var(--muted)}
.graph rect{fill:var(--card);stroke:var(--line)}
.graph .version rect{fill:var(--soft);stroke:none}
.graph .edge{fill:none;stroke:var(--accent);opacity:.4}
.graph .next{stroke:var(--muted);fill:none}
.rates{display:grid;grid-template-columns:auto minmax(0,1fr) auto;gap:6px 12px;align-items:center;font-size:13.5px}
.rates .bar{height:14px;border-radius:4px;background:var(--soft) linear-gradient(var(--accent),var(--accent)) no-repeat left/var(--w) 100%}
.rates .before{background-image:linear-gradient(var(--muted),var(--muted))}
.rates .waits{background:var(--soft) linear-gradient(var(--other),var(--other)) no-repeat left/var(--w) 100%}
.rates .n{white-space:nowrap}
.gallery{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:12px}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;overflow:hidden;min-width:0}
figure img{display:block;width:100%;height:150px;object-fit:contain;background:var(--bg)}
figcaption{padding:7px 10px 8px;font-size:12px;line-height:1.35;color:var(--muted);overflow-wrap:anywhere;border-top:1px solid var(--line)}
footer{margin-top:44px;padding-top:14px;border-top:1px solid var(--line);color:var(--muted);font-size:13px;max-width:78ch}
@media(max-width:520px){main{padding:20px 14px 36px}h1{font-size:23px}.tiles{grid-template-columns:1fr 1fr;gap:8px}.tile{padding:10px 12px}
.tile b{font-size:18px}.grid,.two,.gallery{gap:8px}.gallery{grid-template-columns:1fr 1fr}h2{margin-top:32px}
table.stack thead{display:none}table.stack tr{display:block;padding:9px 0;border-bottom:1px solid var(--line)}table.stack tr:last-child{border:0}
table.stack td{display:block;border:0;padding:1px 14px;text-align:left;min-width:0}table.stack .n{font-weight:600}
table.stack td:last-child{color:var(--muted);font-size:12.5px}
table.stack td[data-name]{display:flex;justify-content:space-between}
table.stack td[data-name]::before{content:attr(data-name);color:var(--muted);font-weight:400}
svg.graph{padding:6px}svg.wide{display:none}.narrow{display:block!important}}
@media print{body{background:#fff}.card,.tile,figure{break-inside:avoid}}
"#;

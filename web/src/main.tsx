import "uplot/dist/uPlot.min.css";
import "./style.css";
import { render } from "preact";
import { App } from "./app";
import { Help, helpName } from "./help";

const root = document.getElementById("page"), page = helpName(location.pathname);
if (root !== null) {
  root.replaceChildren();
  render(page === null ? <App /> : <Help name={page} />, root);
}
